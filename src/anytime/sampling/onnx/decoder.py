"""The decoder as an ONNX graph, with batch norms fused into the convolutions before them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from anytime.autoencoders.networks.conv_image import BatchNormResidualBlock
from anytime.autoencoders.networks.residual_audio import AudioResidualBlock
from anytime.autoencoders.networks.residual_image import ImageResidualBlock
from anytime.autoencoders.vqvae import VQVAE
from anytime.sampling.onnx.graph import FLOAT, INT64, Graph

RESIDUAL = (BatchNormResidualBlock, ImageResidualBlock, AudioResidualBlock)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.ConvTranspose1d, nn.ConvTranspose2d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d)


def decoder_graph(autoencoder: VQVAE, tensors: Mapping[str, Tensor]) -> Graph:
    """Return the graph: any number of codes to data; latents of missing codes are zero."""
    graph, config = Graph("decoder", tensors), autoencoder.config
    codes = graph.input("codes", INT64, ["batch", "count"])
    latents = graph.add("Gather", graph.weight("autoencoder.quantizer.codebook"), codes)
    missing = graph.add("Sub", graph.constant([config.length]), graph.add("Shape", codes, start=1))
    padding = graph.add("Concat", graph.constant([0, 0, 0, 0]), missing, graph.constant([0]), axis=0)
    latents = graph.add("Pad", latents, padding)
    if config.layout == "spatial":
        latents = graph.add("Transpose", latents, perm=[0, 2, 1])
    features = graph.add("Reshape", latents, graph.constant([0, config.channels, *config.spatial_shape]))
    data = _layers(graph, features, autoencoder.decoder, "autoencoder.decoder")
    graph.output("data", data, FLOAT, ["batch", *config.shape])
    return graph


def _layers(graph: Graph, x: str, layers: nn.Sequential, name: str) -> str:
    for index, layer, norm in _with_norms(layers):
        x = _layer(graph, x, layer, norm, f"{name}.{index}")
    return x


def _with_norms(layers: nn.Sequential) -> Iterator[tuple[int, nn.Module, tuple[int, nn.BatchNorm2d] | None]]:
    """Yield every layer that is not a batch norm, with its index and the batch norm after it."""
    following = [*list(layers)[1:], None]
    for index, (layer, after) in enumerate(zip(layers, following, strict=True)):
        if not isinstance(layer, nn.BatchNorm2d):
            yield index, layer, (index + 1, after) if isinstance(after, nn.BatchNorm2d) else None


def _layer(graph: Graph, x: str, layer: nn.Module, norm: tuple[int, nn.BatchNorm2d] | None, name: str) -> str:
    match layer:
        case nn.Conv1d() | nn.Conv2d() | nn.ConvTranspose1d() | nn.ConvTranspose2d():
            return _convolution(graph, x, layer, None if norm is None else norm[1], name)
        case nn.Linear():
            return graph.add("Gemm", x, graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias"), transB=1)
        case nn.SiLU():
            return graph.add("Mul", x, graph.add("Sigmoid", x))
        case nn.LeakyReLU():
            return graph.add("LeakyRelu", x, alpha=layer.negative_slope)
        case nn.ReLU() | nn.Sigmoid() | nn.Tanh():
            return graph.add({nn.ReLU: "Relu", nn.Sigmoid: "Sigmoid", nn.Tanh: "Tanh"}[type(layer)], x)
        case nn.Flatten():
            return graph.add("Flatten", x)
        case nn.Unflatten():
            return graph.add("Reshape", x, graph.constant([0, *map(int, layer.unflattened_size)]))
        case BatchNormResidualBlock() | ImageResidualBlock() | AudioResidualBlock():
            return graph.add("Add", x, _layers(graph, x, layer.block, f"{name}.block"))
    raise TypeError(f"no ONNX form of {type(layer).__name__}")


Convolution = nn.Conv1d | nn.Conv2d | nn.ConvTranspose1d | nn.ConvTranspose2d


def _convolution(graph: Graph, x: str, layer: Convolution, norm: nn.BatchNorm2d | None, name: str) -> str:
    """γ (Wx + b − μ) / σ + β = (γ/σ) W x + (b − μ) γ/σ + β"""
    transposed = isinstance(layer, TRANSPOSED)
    weight = graph.weight(f"{name}.weight")
    bias = graph.weight(f"{name}.bias") if layer.bias is not None else None
    if norm is not None:
        scale, shift = _scale_and_shift(norm, layer.bias)
        output_axis = 1 if transposed else 0
        shape = [-1 if axis == output_axis else 1 for axis in range(layer.weight.ndim)]
        weight = graph.add("Mul", weight, graph.constant(scale.reshape(shape)))  # a constant: computed when loaded
        bias = graph.constant(shift)
    attributes: dict[str, Any] = {
        "kernel_shape": list(layer.kernel_size),
        "strides": list(layer.stride),
        "dilations": list(layer.dilation),
        "pads": [int(p) for p in layer.padding] * 2,
    }
    if transposed:
        attributes["output_padding"] = list(layer.output_padding)
    inputs = [x, weight] if bias is None else [x, weight, bias]
    return graph.add("ConvTranspose" if transposed else "Conv", *inputs, **attributes)


def _scale_and_shift(norm: nn.BatchNorm2d, bias: Tensor | None) -> tuple[np.ndarray, np.ndarray]:
    assert norm.running_mean is not None and norm.running_var is not None
    scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach()
    before = norm.running_mean if bias is None else norm.running_mean - bias.detach()
    return scale.numpy(), (norm.bias.detach() - before * scale).numpy()
