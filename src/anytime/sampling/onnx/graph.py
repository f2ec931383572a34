"""A builder of ONNX graphs. Weights take the bytes that they take in the model's file: one for int8, two for bfloat16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from anytime.core.quantized_weights import SCALE_PREFIX

OPSET = 20
"""Version of ONNX's operators; ONNX Runtime has them since 1.17."""
IR_VERSION = 10
"""Version of the file format."""
FLOAT, INT64 = 1, 7
"""Numbers of ONNX's data types."""
DATA_TYPES = {torch.float32: FLOAT, torch.int8: 3, torch.int64: INT64, torch.float16: 10}

Shape = Sequence[int | str]


@dataclass(frozen=True, slots=True)
class Value:
    """An input or an output; names in its shape are dynamic sizes."""

    name: str
    dtype: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class Node:
    """An operation on values, which are known by their names."""

    kind: str
    inputs: tuple[str, ...]
    outputs: list[str]
    attributes: dict[str, Any]


@dataclass
class Graph:
    """A graph in progress.

    `tensors` are the weights as they are stored (see `core/quantized_weights.py`). They are expanded to float32 by a `Cast` and
    a `Mul`, exactly as `dequantize_weights` does it. ONNX Runtime computes these constants once, when it loads the file; it
    would leave a `DequantizeLinear` for every step.
    """

    name: str
    tensors: Mapping[str, Tensor]
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    _expanded: dict[str, str] = field(default_factory=dict)

    def input(self, name: str, dtype: int, shape: Shape) -> str:
        """Declare an input; return its name."""
        self.inputs.append(Value(name, dtype, shape))
        return name

    def output(self, name: str, value: str, dtype: int, shape: Shape) -> None:
        """Declare a value as an output."""
        self.nodes.append(Node("Identity", (value,), [name], {}))
        self.outputs.append(Value(name, dtype, shape))

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; return its name."""
        return self.split(kind, *inputs, outputs=1, **attributes)[0]

    def split(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs; return their names."""
        names = [f"{kind}_{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(Node(kind, inputs, names, attributes))
        return names

    def constant(self, values: Shaped[np.ndarray, "..."] | Sequence[int]) -> str:
        """Add a constant; return its name. Whole numbers are int64."""
        array = values if isinstance(values, np.ndarray) else np.array(values, np.int64)
        return self._store(f"constant_{len(self.constants)}", torch.from_numpy(array))

    def weight(self, name: str) -> str:
        """Return a weight of the model as float32."""
        if name not in self._expanded:
            self._expanded[name] = self._expand(name, self.tensors[name])
        return self._expanded[name]

    def _expand(self, name: str, tensor: Tensor) -> str:
        if tensor.dtype == torch.bfloat16:
            tensor, scale = to_float16(tensor)
        else:
            scale = self.tensors.get(SCALE_PREFIX + name, torch.ones(1)).view(-1, *[1] * (tensor.ndim - 1))
        stored = self._store(name, tensor)
        if tensor.dtype == torch.float32:
            return stored
        return self.add("Mul", self.add("Cast", stored, to=FLOAT), self._store(SCALE_PREFIX + name, scale))

    def _store(self, name: str, tensor: Tensor) -> str:
        self.constants[name] = tensor
        return name

    def serialize(self, *, check: bool = True) -> bytes:
        """Return the file, by default checked; equal graphs give equal bytes."""
        import onnx
        from onnx import helper

        nodes = [helper.make_node(n.kind, n.inputs, n.outputs, name=n.outputs[0], **n.attributes) for n in self.nodes]
        inputs, outputs = (
            [helper.make_tensor_value_info(value.name, value.dtype, value.shape) for value in values]
            for values in (self.inputs, self.outputs)
        )
        constants = [
            helper.make_tensor(name, DATA_TYPES[tensor.dtype], tensor.shape, _content(tensor), raw=True)
            for name, tensor in self.constants.items()
        ]
        opset = [helper.make_opsetid("", OPSET)]
        graph = helper.make_graph(nodes, self.name, inputs, outputs, constants)
        model = helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opset, producer_name="anytime")
        if check:
            onnx.checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString(deterministic=True)
        return content


def to_float16(weight: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, ""]]:
    """Return a bfloat16 weight exactly, as float16 and a power of two that it is multiplied by.

    ONNX Runtime for WebGPU cannot read bfloat16. The result is float32 if a value is too small beside the largest, by 2^31.

    >>> halves, scale = to_float16(torch.tensor([3e-5, -1e-9], dtype=torch.bfloat16))
    >>> halves.dtype, torch.equal((halves.float() * scale).bfloat16(), torch.tensor([3e-5, -1e-9]).bfloat16())
    (torch.float16, True)
    >>> to_float16(torch.tensor([1.0, 1e-30], dtype=torch.bfloat16))[0].dtype
    torch.float32
    """
    wide = weight.float()
    largest = torch.frexp(wide.abs().max()).exponent
    scale = torch.ldexp(torch.ones(()), (largest - 15).clamp(-126, 127))
    halves = (wide / scale).half()
    return (halves, scale) if torch.equal(halves.float() * scale, wide) else (wide, torch.ones(()))


def _content(tensor: Tensor) -> bytes:
    return bytes(tensor.detach().contiguous().flatten().view(torch.uint8).numpy())
