"""The hash of a model's weights, computed again only when they have changed."""

from __future__ import annotations

from torch import Tensor, nn

from anytime.core import storage


class WeightsHash:
    """The hash of a module's parameters and buffers, kept until one of them changes.

    Replaced tensors and in-place operations are noticed: an optimiser's step, `load_state_dict`, `.to`. Torch does not count
    edits through `.data` or through memory shared with numpy: call `forget` after one.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._hash: str | None = None
        self._versions: list[tuple[int, int]] | None = None
        self._kept: list[Tensor] = []  # their memory: an address that is in use cannot become another tensor's

    def __reduce__(self) -> tuple[type[WeightsHash], tuple[nn.Module]]:
        """Copy and pickle without the hash: the copied tensors have other addresses."""
        return WeightsHash, (self._module,)

    def __call__(self) -> str:
        """Return the hash of the weights as they are now."""
        if self._hash is None or self.has_changed:
            self.set(storage.digest(self._module.state_dict()))
        assert self._hash is not None
        return self._hash

    def set(self, found: str) -> None:
        """Keep a hash that is known, such as that of the file just read."""
        tensors = _tensors(self._module)
        self._hash, self._versions, self._kept = found, _versions(tensors), [tensor.detach() for tensor in tensors]

    def forget(self) -> None:
        """Compute the hash again at the next call."""
        self._hash, self._versions, self._kept = None, None, []

    @property
    def has_changed(self) -> bool:
        """Whether the weights differ from those of the last hash, as far as torch counts changes."""
        return self._versions is None or self._versions != _versions(_tensors(self._module))


def _tensors(module: nn.Module) -> list[Tensor]:
    """Return all parameters and buffers. This is done for every request, so it takes no iterator and no recursion."""
    found, modules = list[Tensor | None](), [module]
    while modules:
        module = modules.pop()
        if module._parameters:
            found += module._parameters.values()
        if module._buffers:
            found += module._buffers.values()
        if module._modules:
            modules += [child for child in module._modules.values() if child is not None]
    return [tensor for tensor in found if tensor is not None]


def _versions(tensors: list[Tensor]) -> list[tuple[int, int]] | None:
    """Return the address and the number of in-place changes of each tensor; None if torch does not count them."""
    try:
        return [(tensor.data_ptr(), tensor._version) for tensor in tensors]
    except RuntimeError:  # a tensor of inference mode has no such number
        return None
