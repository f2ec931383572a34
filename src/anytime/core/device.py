"""The choice of the device, and its memory."""

from __future__ import annotations

import os
import sys

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


def total_memory(device: torch.device) -> int:
    """Return the bytes of memory of a GPU, or of this machine; the largest number where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if not hasattr(os, "sysconf"):
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
