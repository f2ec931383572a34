"""The engine process: loads the models, chooses the threads, measures what steps and decodes cost, and serves.

Its single thread owns the models and their slots.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from anytime.core.errors import UserError
from anytime.core.priority import raised_priority
from anytime.data.audio_io import SAMPLE_RATE
from anytime.model import AnytimeModel, load
from anytime.sampling.engines.base import Request
from anytime.sampling.slots import SlotGroup, SlotTable, build_slots
from anytime.sampling.threads import ThreadChoice
from anytime.server.costs import CostModel, Curve
from anytime.server.engine_loop import EngineLoop, ServedModel, to_host
from anytime.server.messages import Curves, EngineSettings, ModelInfo, Unable

SLOTS = {"cpu": 256, "cuda": 2048}
CALIBRATED_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
CALIBRATION_SECONDS = 0.25
"""Sizes are calibrated up to the first whose step or decode takes longer than this."""
REPEATS = 5
USUAL_ROWS = 16


def from_socket(descriptor: int) -> None:
    """Serve the process at the other end of a socket; its first message are the settings."""
    connection = Connection(descriptor)
    main(connection, connection.recv())


def main(connection: Connection, settings: EngineSettings) -> None:
    """Serve requests that arrive on the connection until it is closed."""
    try:
        served = start(settings)
    except UserError as error:
        connection.send(Unable(str(error)))
        return
    with raised_priority(), suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the web process has gone
        EngineLoop(connection, served, settings.adaptive).run()


def start(settings: EngineSettings) -> list[ServedModel]:
    """Load the models, choose the threads and measure what steps and decodes cost, unless that is known."""
    served, known = list[ServedModel](), iter(settings.curves)
    for name in settings.models:
        model = load(name, settings.device, settings.engine, settings.precision)
        slots = settings.slots or SLOTS[model.device.type]
        table = build_slots(model.engine, slots)
        curves = next(known, None)
        if curves is not None:
            torch.set_num_threads(curves.threads)
        else:
            if not served and model.device.type == "cpu":
                choose_threads(model, table)
            curves = calibrate(model, table)
        costs = cost_model(curves)
        served.append(ServedModel(model, describe(name, model, costs, slots), table, costs, curves))
    return served


def choose_threads(model: AnytimeModel, table: SlotTable) -> None:
    """Set torch's number of threads by the time of a step of a usual batch; one core is left to the web process."""
    choice = ThreadChoice(max(1, min(torch.get_num_threads(), (os.cpu_count() or 2) - 1)))
    if not choice.is_measured:
        choice.measure(lambda: time_step(model, table, USUAL_ROWS))
    torch.set_num_threads(choice.count)


def calibrate(model: AnytimeModel, table: SlotTable) -> Curves:
    """Measure a step, a decode and the joining of a request for several numbers of rows."""
    steps, decodes, joins, has_code = dict[int, float](), dict[int, float](), dict[int, float](), False
    for rows in (rows for rows in CALIBRATED_ROWS if rows <= table.capacity):
        steps[rows] = min(time_step(model, table, rows) for _ in range(REPEATS))
        joins[rows], has_code = min(time_join(model, table, rows) for _ in range(REPEATS))
        codes = torch.zeros(rows, model.length, dtype=torch.long, device=model.device)
        decodes[rows] = min(timed(lambda codes=codes: to_host(table.decode(codes), True)) for _ in range(REPEATS))  # type: ignore[misc]
        if steps[rows] + decodes[rows] > CALIBRATION_SECONDS:
            break
    return Curves(steps, decodes, torch.get_num_threads(), joins, has_code)


def cost_model(curves: Curves) -> CostModel:
    """Return what curves say about costs."""
    step, decode, join = (Curve(curve) for curve in (curves.step, curves.decode, curves.join))
    return CostModel(step, decode, join, samples_at_join=curves.samples_at_join)


def timed(work: Callable[[], Any]) -> float:
    """Return the seconds of a piece of work."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def time_join(model: AnytimeModel, table: SlotTable, rows: int) -> tuple[float, bool]:
    """Return the seconds until a new request has its slots, and whether it has its first code then."""
    began = time.perf_counter()
    group = _join(model, table, rows)
    model.engine.wait()
    seconds = time.perf_counter() - began
    table.leave(group)
    return seconds, group.count > 0


def _join(model: AnytimeModel, table: SlotTable, rows: int) -> SlotGroup:
    prefix = torch.zeros(rows, 0, dtype=torch.long)
    return table.join(Request(prefix, torch.arange(rows), 0, model.settings(), model.hash))


def time_step(model: AnytimeModel, table: SlotTable, rows: int) -> float:
    """Return the seconds of a step in the middle of the sequence."""
    group = _join(model, table, rows)
    while group.position < min(model.length - 1, model.length // 2):
        table.step([group])
    model.engine.wait()
    began = time.perf_counter()
    if group.position < model.length:
        table.step([group])
        model.engine.wait()
    seconds = time.perf_counter() - began
    table.leave(group)
    return seconds


def describe(name: str, model: AnytimeModel, costs: CostModel, slots: int) -> ModelInfo:
    """Return what the web process needs to know about a model."""
    return ModelInfo(
        name=name.rstrip("/").split("/")[-1],
        dataset=model.config.name,
        hash=model.hash,
        length=model.length,
        codebook_size=model.codebook_size,
        shape=model.config.autoencoder.shape,
        sample_rate=SAMPLE_RATE if model.is_audio else None,
        temperature=model.config.temperature,
        quality=quality_by_codes(model),
        step_ms=1000 * costs.step(1),
        decode_ms=1000 * costs.decode(1),
        slots=slots,
    )


def quality_by_codes(model: AnytimeModel) -> tuple[float | None, ...]:
    """Return the quality of 1, 2, … codes by the model's table; None below the shortest measured length."""
    table = model.quality_table
    if table is None:
        return ()
    best, shortest = table.curve[-1][1], table.curve[0][0]
    return tuple((best / at if (at := table.at(k)) else 1.0) if k >= shortest else None for k in range(1, model.length + 1))
