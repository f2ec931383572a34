from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anytime.core.errors import UserError
from anytime.core.quantized_weights import INT8_MAX, dequantize_weights, quantize_rows, quantize_weights


@given(st.integers(0, 10_000), st.floats(1e-6, 1e6))
def test_bytes_are_within_half_a_step(seed: int, size: float) -> None:
    matrix = size * torch.randn(5, 7, generator=torch.Generator().manual_seed(seed))
    steps, scale = quantize_rows(matrix)
    assert steps.dtype == torch.int8
    assert (steps.abs().amax(1) == INT8_MAX).all(), "the largest of a row uses the whole range"
    back = dequantize_weights({"w": steps, "scale/w": scale})["w"]
    assert ((back - matrix).abs() <= 0.5001 * scale[:, None]).all()


def test_rows_have_scales_of_their_own() -> None:
    """A small row beside a large one keeps its digits."""
    matrix = torch.tensor([[1e-3, -2e-3], [1e3, 5.0]])
    back = dequantize_weights(quantize_weights({"w": matrix}, lambda name, tensor: "int8"))["w"]
    assert back[0].tolist() == pytest.approx([1e-3, -2e-3], rel=1e-2)


def test_kernels_zeros_and_vectors() -> None:
    kernel = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    tensors = {"kernel": kernel, "nothing": torch.zeros(3, 2), "vector": torch.rand(5), "count": torch.tensor(7)}
    formats = {"kernel": "int8", "nothing": "int8", "vector": "bf16", "count": "fp32"}
    found = quantize_weights(tensors, lambda name, tensor: formats[name])  # type: ignore[arg-type,return-value]
    assert {name: tensor.dtype for name, tensor in found.items()} == {
        "kernel": torch.int8,
        "scale/kernel": torch.float32,
        "nothing": torch.int8,
        "scale/nothing": torch.float32,
        "vector": torch.bfloat16,
        "count": torch.int64,
    }
    back = dequantize_weights(found)
    assert back.keys() == tensors.keys()
    assert all(back[name].shape == tensors[name].shape and back[name].dtype == tensors[name].dtype for name in tensors)
    assert torch.equal(back["nothing"], tensors["nothing"])
    assert torch.equal(back["count"], tensors["count"])
    torch.testing.assert_close(back["vector"], tensors["vector"], rtol=2**-8, atol=0)
    torch.testing.assert_close(back["kernel"], kernel, rtol=0, atol=float(kernel.abs().max()) / 250)


def test_expanding_twice_gives_the_same_bytes() -> None:
    matrix = torch.randn(9, 9, generator=torch.Generator().manual_seed(1))
    once = dequantize_weights(quantize_weights({"w": matrix}, lambda name, tensor: "int8"))
    assert torch.equal(dequantize_weights(quantize_weights(once, lambda name, tensor: "int8"))["w"], once["w"])


@pytest.mark.parametrize("scale", [None, torch.ones(2), torch.ones(3, 1)])
def test_a_scale_that_is_missing_or_does_not_fit(scale: torch.Tensor | None) -> None:
    tensors = {"w": torch.ones(3, 4, dtype=torch.int8)} | ({} if scale is None else {"scale/w": scale})
    with pytest.raises(UserError, match="the quantised tensor w needs a scale for each of its rows"):
        dequantize_weights(tensors)
