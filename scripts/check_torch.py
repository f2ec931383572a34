"""Fails with a sentence if set-up brought a CUDA build of torch to a machine without a GPU."""

import shutil
import sys
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # which comes after torch, with everything else
import torch  # noqa: E402

if torch.version.cuda and not torch.cuda.is_available() and shutil.which("nvidia-smi") is None:
    sys.exit(
        f"torch {torch.__version__} is a CUDA build of several gigabytes, and this machine has no NVIDIA GPU: "
        "run `make clean`, then name a CPU build, for example make demo TORCH=torch==2.13.0+cpu TORCH_SOURCE='--index-url URL'"
    )
print(f"torch {torch.__version__}")
