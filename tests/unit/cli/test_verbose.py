"""`--verbose` prints what the package logs, and nothing is printed without it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from anytime.sampling.sampler import Sampler

from .conftest import Command


@pytest.mark.parametrize("flags", [(), ("--verbose",)])
def test_what_is_logged_is_printed_if_asked_for(
    command: Command, model: Path, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, log = Sampler.run, logging.getLogger("anytime.sampling.engines.cuda_megakernel")

    def logged(self: Sampler, *arguments: object) -> object:
        log.info("the megakernel cannot be used: %s", "NVRTC is not installed")
        return whole(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Sampler, "run", logged)
    outcome = command("sample", model, "-n", 1, "--engine", "eager", *flags)
    assert outcome.status == 0
    assert outcome.err.count("the megakernel cannot be used: NVRTC is not installed\n") == len(flags)
    assert not logging.getLogger("anytime").handlers, "a caller's own logging stays as it was"
