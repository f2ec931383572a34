"""What the baselines share: a model without codes that is saved as a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from anytime.core import storage
from anytime.core.config import from_dict, read_json, to_dict
from anytime.core.errors import UserError
from anytime.core.model_weights import read_weights
from anytime.models.registry import CONFIG, WEIGHTS


class BaselineModel(nn.Module):
    """A model without codes; `kind` marks its config.json, so that `anytime.load` can refuse it."""

    kind: ClassVar[str]
    config: Any

    def save(self, directory: str | Path) -> Path:
        """Write `config.json` and `model.safetensors`; return the directory."""
        directory = Path(directory)
        storage.write_tensors(directory / WEIGHTS, self.state_dict())
        storage.write_json(directory / CONFIG, {"kind": self.kind, **to_dict(self.config)})
        return directory


Model = TypeVar("Model", bound=BaselineModel)


def load_baseline(directory: str | Path, model_type: type[Model], config_type: type, device: str | torch.device) -> Model:
    """Load a saved baseline or the model of a finished run."""
    directory = Path(directory)
    if (directory / "model" / CONFIG).is_file():
        directory = directory / "model"
    if not (directory / WEIGHTS).is_file():
        raise UserError(f"{directory} is not a saved model: it holds no {WEIGHTS}; train one with `anytime train`")
    data = read_json(directory / CONFIG)
    if data.pop("kind", None) != model_type.kind:
        raise UserError(f"{directory} holds another kind of model than {model_type.kind}; name the directory of such a run")
    config: Any = from_dict(config_type, data, str(directory / CONFIG))
    tensors, _ = read_weights(directory / WEIGHTS, lambda: model_type(config))
    model = model_type(config)
    model.load_state_dict(tensors)
    return model.to(device).eval()
