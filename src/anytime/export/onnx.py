"""ONNX export: the prior and the decoder as ONNX files, which run without torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from anytime.core import storage
from anytime.core.errors import UserError
from anytime.export.exported import Exported, check_empty, load_exportable, write_exported
from anytime.models.registry import WEIGHTS, locate
from anytime.sampling.onnx.decoder import decoder_graph
from anytime.sampling.onnx.graph import OPSET
from anytime.sampling.onnx.prior import prior_graph

SUFFIX = ".onnx"


def export_onnx(name: str | Path, folder: Path) -> Exported:
    """Write a model as ONNX files into a directory, with a runner; weights keep the format of the model's file."""
    check_empty(folder, SUFFIX)
    check_installed()
    model, prior = load_exportable(name)
    tensors, _, _ = storage.read_tensors(locate(name) / WEIGHTS)
    graphs = {"prior": prior_graph(prior, tensors), "decoder": decoder_graph(model.autoencoder, tensors)}
    networks = {network: graph.serialize() for network, graph in graphs.items()}
    return write_exported(folder, model, networks, SUFFIX, {"runtime": "onnx", "opset": OPSET})


def check_installed() -> None:
    """Refuse to write ONNX files without the package for them."""
    if importlib.util.find_spec("onnx") is None:
        raise UserError("ONNX files need the package onnx, and their runner onnxruntime; run `pip install onnx onnxruntime`")
