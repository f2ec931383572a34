"""The choice of the device."""

from __future__ import annotations

import torch

from anytime.core.errors import UserError


def pick_device(device: str | torch.device | None = None) -> torch.device:
    """Return the given device; by default CUDA if there is a GPU, else the CPU."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        picked = torch.device(device)
    except RuntimeError:
        raise UserError(f"`device` {device!r} is not a device; use cpu or cuda") from None
    if picked.type not in ("cpu", "cuda"):
        raise UserError(f"`device` {str(device)!r} is not supported; use cpu or cuda")
    if picked.type == "cuda" and not torch.cuda.is_available():
        raise UserError("`device` cuda needs an NVIDIA GPU and a CUDA build of torch; use `device` cpu")
    return picked
