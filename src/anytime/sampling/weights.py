"""The hash of a model's weights, computed again only when they have changed."""

from __future__ import annotations

from collections.abc import Iterator

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
        tensors = list(_tensors(self._module))
        self._hash, self._versions, self._kept = found, _versions(tensors), [tensor.detach() for tensor in tensors]

    def forget(self) -> None:
        """Compute the hash again at the next call."""
        self._hash, self._versions, self._kept = None, None, []

    @property
    def has_changed(self) -> bool:
        """Whether the weights differ from those of the last hash, as far as torch counts changes."""
        return self._versions is None or self._versions != _versions(list(_tensors(self._module)))


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    """Yield all parameters and buffers; a fifth of the time of `module.parameters()`, which counts for a single row."""
    for tensor in (*module._parameters.values(), *module._buffers.values()):
        if tensor is not None:
            yield tensor
    for child in module._modules.values():
        if child is not None:
            yield from _tensors(child)


def _versions(tensors: list[Tensor]) -> list[tuple[int, int]] | None:
    """Return the address and the number of in-place changes of each tensor; None if torch does not count them."""
    if any(tensor.is_inference() for tensor in tensors):
        return None
    return [(tensor.data_ptr(), tensor._version) for tensor in tensors]
