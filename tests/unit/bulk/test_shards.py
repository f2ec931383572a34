"""A shard's bytes depend on the request and its number alone; tar files have webdataset's layout."""

from __future__ import annotations

import io
import json
import tarfile
import threading
import wave
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from anytime.bulk.request import BulkRequest, bulk_request
from anytime.bulk.shards import Stopped, make_shard, tar_bytes
from anytime.core.errors import UserError
from anytime.model import AnytimeModel
from anytime.sampling.engines.eager import EagerEngine
from anytime.sampling.sample import Sample
from anytime.sampling.sample_file import read_npz

Refused = Callable[..., str]


def request_of(model: AnytimeModel, n: int = 40, **options: Any) -> BulkRequest:
    return bulk_request(model, n, **{"codes": 3, "rows_per_shard": 16, **options})


def shard(model: AnytimeModel, request: BulkRequest, index: int) -> Sample:
    return read_npz(io.BytesIO(make_shard(model, request, index)), "shard")


def test_shards_hold_the_rows_of_the_model(tiny: AnytimeModel) -> None:
    options = {"seed": 7, "codes": 5, "temperature": 0.8, "top_k": 9, "prefix": (3, 1)}
    request = request_of(tiny, **options)
    shards = [shard(tiny, request, index) for index in range(request.count)]
    expected = tiny.sample(40, **{**options, "prefix": torch.tensor([[3, 1]])})
    assert [len(each.rows) for each in shards] == [16, 16, 8]
    assert torch.equal(torch.cat([each.rows for each in shards]), torch.arange(40))
    assert torch.equal(torch.cat([each.codes for each in shards]), expected.codes)
    torch.testing.assert_close(torch.cat([each.data for each in shards]), expected.data)
    assert {(each.seed, each.settings, each.model) for each in shards} == {(7, expected.settings, tiny.hash)}


def test_a_row_does_not_depend_on_the_number_of_samples(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    computed, start = list[int](), EagerEngine.start
    monkeypatch.setattr(EagerEngine, "start", lambda self, request: computed.append(len(request.rows)) or start(self, request))
    few, many = (shard(tiny, request_of(tiny, n), 1) for n in (19, 32))
    assert len(few.rows) == 3 and set(computed) == {8}, "the last block is computed in full"
    assert torch.equal(few.codes, many.codes[:3]) and torch.equal(few.data, many.data[:3])
    assert make_shard(tiny, request_of(tiny, 19), 0) == make_shard(tiny, request_of(tiny, 32), 0)


def test_the_number_of_threads_is_fixed(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    used, step, before = set[int](), EagerEngine.step, torch.get_num_threads()
    monkeypatch.setattr(EagerEngine, "step", lambda *given: used.add(torch.get_num_threads()) or step(*given))
    torch.set_num_threads(2)
    try:
        content = make_shard(tiny, request_of(tiny), 0)
        assert used == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert content == make_shard(tiny, request_of(tiny), 0)


def test_a_tar_file_has_a_png_and_a_json_file_by_row(tiny: AnytimeModel) -> None:
    expected = shard(tiny, request_of(tiny, seed=4), 1)
    with tarfile.open(fileobj=io.BytesIO(make_shard(tiny, request_of(tiny, seed=4, shards="tar"), 1))) as archive:
        members = archive.getmembers()
        assert [member.name for member in members[:4]] == [
            "0000000016.png",
            "0000000016.json",
            "0000000017.png",
            "0000000017.json",
        ]
        assert len(members) == 32
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {(0, 0, 0, "", "", 0o644)}
        files = {member.name: archive.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    for position, row in enumerate(range(16, 32)):
        with Image.open(io.BytesIO(files[f"{row:010d}.png"])) as image:
            np.testing.assert_array_equal(np.asarray(image), expected.uint8()[position, 0].numpy())
        facts = json.loads(files[f"{row:010d}.json"])
        assert facts == {"row": row, "seed": 4, "codes": expected.codes[position].tolist()}


def test_audio_is_wav_in_tar(tiny: AnytimeModel) -> None:
    data, codes = torch.linspace(-1, 1, 20).reshape(2, 1, 10), torch.zeros(2, 3, dtype=torch.long)
    content = tar_bytes(Sample(data, codes, 0.0, 0, torch.arange(2), tiny.settings(), tiny.hash))
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == ["0000000000.wav", "0000000000.json", "0000000001.wav", "0000000001.json"]
        with wave.open(archive.extractfile("0000000001.wav")) as file:  # type: ignore[arg-type]
            assert file.getnframes() == 10


def test_a_stopped_shard_is_not_returned(tiny: AnytimeModel) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        make_shard(tiny, request_of(tiny), 0, stop)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"n": 0}, "`n` must be at least 1"),
        ({"n": 1 << 31}, "`n` must be below"),
        ({"n": 10**9}, "`n` of 1000000000 makes 62,500,000 shards; set `rows_per_shard` to 10000 or more"),
        ({"seed": -1}, "`seed` must be between"),
        ({"codes": 9}, "`codes` must be between 1 and 8"),
        ({"codes": None, "fraction": 0.0}, "`fraction` must be above 0"),
        ({"codes": None, "quality": 0.9}, "`quality` needs the model's quality table"),
        ({"prefix": (99,)}, "`prefix` has the code 99"),
        ({"prefix": (1, 2, 3, 4)}, "`prefix` has 4 codes, more than the 3 requested"),
        ({"temperature": 0.0}, "`temperature` must be between"),
        ({"shards": "zip"}, "`shards` 'zip' is unknown; use npz or tar"),
        ({"rows_per_shard": 12}, "`rows_per_shard` must be a multiple of 8"),
        ({"rows_per_shard": 0}, "`rows_per_shard` must be a multiple of 8"),
        ({"rows_per_shard": 1 << 21}, "and at most 1048576"),
    ],
)
def test_mistakes_are_one_sentence(options: dict[str, Any], expected: str, tiny: AnytimeModel, refused: Refused) -> None:
    assert expected in refused(request_of, tiny, **options)


def test_a_device_with_smaller_blocks_is_refused(tiny: AnytimeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_of(tiny)
    monkeypatch.setattr(EagerEngine, "block", 4)
    with pytest.raises(UserError, match="computes 4 rows at once and the request needs 8"):
        make_shard(tiny, request, 0)
