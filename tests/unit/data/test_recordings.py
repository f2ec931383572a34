"""Recordings cut into examples: addressed crops, fixed tiles, padding that differs from silence."""

from __future__ import annotations

import torch

from anytime.data.loader import Loader, to_float, valid_mask
from anytime.data.recordings import MAX_LENGTH, PADDING, Recordings, is_valid_sample, segment_recordings

LENGTHS = [5, 8, 30, 17]


def recordings() -> Recordings:
    """Every sample holds its own index, so that a crop shows where it was cut."""
    return segment_recordings(torch.arange(sum(LENGTHS), dtype=torch.int16), LENGTHS, list("abcd"), crop=8)


def test_tiles_follow_each_other_and_short_ones_are_padded() -> None:
    tiles = recordings().tiles()[:, 0]
    assert tiles[:, 0].tolist() == [0, 5, 13, 21, 29, 43, 51]  # 1 + 1 + 3 + 2 crops
    assert tiles[0].tolist() == [0, 1, 2, 3, 4, PADDING, PADDING, PADDING]
    assert (tiles[1:] != PADDING).all()
    assert recordings().num_short == 1


def test_crops_stay_inside_their_recording_and_reach_both_ends() -> None:
    whole, position = recordings(), torch.linspace(1e-6, 1 - 1e-6, 200)
    for row, (start, length) in enumerate(zip([0, 5, 13, 43], LENGTHS, strict=True)):
        crops = whole.crops(torch.full((200,), row), position)[:, 0]
        starts = crops[:, 0]
        assert starts.min() == start
        assert starts.max() == start + max(0, length - 8)
        assert (crops[:, -1] == (PADDING if length < 8 else starts + 7)).all()


def test_every_epoch_takes_its_own_crops_and_any_step_can_be_computed() -> None:
    loader = Loader(recordings(), batch=2, seed=3)
    assert loader.steps_per_epoch == 2
    batches = [loader.batch_at(step) for step in range(40)]
    again = Loader(recordings(), batch=2, seed=3)
    assert all(torch.equal(again.batch_at(step), batches[step]) for step in (31, 7, 0))
    third = {int(x[0, 0]) for batch in batches for x in batch if 13 <= x[0, 0] < 43}
    assert len(third) > 8  # of 23 positions, in 20 epochs
    assert any(not torch.equal(Loader(recordings(), 2, 4).batch_at(step), batches[step]) for step in range(4))


def test_two_processes_split_the_batch_of_one() -> None:
    whole = Loader(recordings(), batch=4, seed=0)
    halves = [Loader(recordings(), batch=4, seed=0, rank=rank, world_size=2) for rank in range(2)]
    for step in range(5):
        assert torch.equal(torch.cat([half.batch_at(step) for half in halves]), whole.batch_at(step))


def test_padding_is_zero_as_float_and_in_the_mask() -> None:
    x = torch.tensor([[0, 32767, -32767, PADDING]], dtype=torch.int16)
    assert to_float(x).tolist() == [[0, 1, -1, 0]]
    assert is_valid_sample(x).tolist() == [[1, 1, 1, 0]]
    assert valid_mask(torch.zeros(2, 2, dtype=torch.uint8)) is None


def test_a_long_recording_is_split_into_segments() -> None:
    hour = 3600 * 16_000
    whole = segment_recordings(torch.zeros(1, dtype=torch.int16).expand(hour), [hour], ["hour"])
    assert len(whole) == 180
    assert int(whole.lengths.max()) <= MAX_LENGTH
    assert int(whole.lengths.sum()) == hour
    assert whole.starts[1:].tolist() == (whole.starts + whole.lengths)[:-1].tolist()


def tone(length: int = 4000, crop: int = 1000) -> Recordings:
    """One recording, 40 samples a period."""
    wave = 10_000 * torch.sin(2 * torch.pi * torch.arange(length) / 40)
    return segment_recordings(wave.round().to(torch.int16), [length], ["a"], crop=crop)


def cycles(x: torch.Tensor) -> float:
    """Periods in a thousand samples."""
    return float(torch.fft.rfft(x.float()).abs().argmax())


def test_speed_changes_pitch_and_length() -> None:
    whole, row = tone(), torch.tensor([0])
    assert cycles(whole.crops(row, torch.tensor([0.3]))[0, 0]) == 25
    for speed, pitch in ((0.8, 20), (1.2, 30)):
        assert cycles(whole.crops(row, torch.tensor([0.3]), torch.tensor([speed]))[0, 0]) == pitch
    same = whole.crops(row, torch.tensor([0.3]), torch.tensor([1.0]))
    assert torch.equal(same, whole.crops(row, torch.tensor([0.3])))
    num_short = tone(600)
    for speed, present_samples in ((0.8, 750), (1.0, 600), (1.5, 400)):
        found = int((num_short.crops(row, torch.tensor([0.5]), torch.tensor([speed])) != PADDING).sum())
        assert abs(found - present_samples) <= 1, "a speed is not exact"
    exact = 10_000 * torch.sin(2 * torch.pi * 1.1 * torch.arange(400) / 40)
    assert (num_short.crops(row, torch.tensor([0.5]), torch.tensor([1.1]))[0, 0, :400] - exact).abs().max() < 60


def test_tiles_at_other_positions_and_speeds() -> None:
    whole = tone(2500)
    assert len(whole.tiles()) == 2
    assert len(whole.tiles(speed=torch.tensor([0.8]))) == 3
    assert len(whole.tiles(speed=torch.tensor([1.3]))) == 1
    moved = whole.tiles(position=torch.tensor([0.5]))
    assert torch.equal(moved[0, 0, :-250], whole.tiles()[0, 0, 250:])
    assert whole.tile_rows().tolist() == [0, 0]
    assert recordings().tile_rows().tolist() == [0, 1, 2, 2, 2, 3, 3]
    assert recordings().first_crops()[:, 0, 0].tolist() == [0, 5, 13, 43]


def test_speed_perturbation_stays_within_its_bounds() -> None:
    whole = segment_recordings(tone().samples.repeat(50), [4000] * 50, [str(i) for i in range(50)], crop=1000)
    pitches = [cycles(x[0]) for x in Loader(whole, 50, 0, speed_perturb=0.2).batch_at(0)]
    assert 25 / 1.2 - 1 <= min(pitches) < 23 and 27 < max(pitches) <= 25 * 1.2 + 1
    assert {cycles(x[0]) for x in Loader(whole, 50, 0).batch_at(0)} == {25}
