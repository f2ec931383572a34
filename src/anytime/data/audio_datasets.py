"""Sets of voices: VCTK and AudioMNIST in the layouts they are published in, and any folder of sounds.

Voices of the validation and the test part are heard nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

import torch
from jaxtyping import Int16
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.random import permutation
from anytime.data.audio_files import AudioFile, AudioFiles, find_audio, read_audio_files
from anytime.data.audio_io import LOUDNESS, SAMPLE_RATE
from anytime.data.dataset import VALIDATION, AudioLabels, Dataset, ReadOptions
from anytime.data.recordings import CROP, Recordings

MIN_RECORDINGS = 10  # recordings without speakers: a tenth of fewer leaves nothing for validation
_DIGIT = re.compile(r"(\d)_(\d+)_\d+\.\w+")  # digit_speaker_take
_UTTERANCE = re.compile(r"([ps]\d+)_(\d+)(?:_mic(\d))?\.\w+")  # speaker_utterance[_microphone]
_VCTK = ("wav48_silence_trimmed", "wav48")  # the better one first; neither: the speakers' folders themselves


def read_audiomnist(options: ReadOptions) -> Dataset:
    """AudioMNIST: data/NN/D_NN_R.wav, the same without data/, or zip files of such folders."""
    return _read(options, "AudioMNIST", *_digit_files(options.root), label=digit_of)


def _digit_files(root: Path) -> tuple[list[AudioFile], list[str]]:
    """The sounds and their speakers."""
    zips = sorted(path for path in root.glob("*.zip") if "audiomnist" in path.name.lower()) if root.is_dir() else []
    found = [audio_file for place in zips or [root] for audio_file in find_audio(place)]
    audio_files = [audio_file for audio_file in found if _DIGIT.fullmatch(PurePosixPath(audio_file.name).name)]
    if not audio_files:
        raise UserError(f"{root} holds no NN/D_NN_R.wav: point --data at AudioMNIST's folder or its zip files")
    return audio_files, [_digit(audio_file.name)[2] for audio_file in audio_files]


def digit_of(name: str) -> int:
    """The digit that is spoken in an AudioMNIST file.

    >>> digit_of("01/7_01_12.flac")
    7
    """
    return int(_digit(name)[1])


def _digit(name: str) -> re.Match[str]:
    match = _DIGIT.fullmatch(PurePosixPath(name).name)
    if match is None:
        raise UserError(f"{name} is not named as AudioMNIST's files are, D_NN_R.wav: correct --data")
    return match


def read_vctk(options: ReadOptions) -> Dataset:
    """VCTK: wav48_silence_trimmed/ or wav48/ with a folder for each speaker, or those folders themselves.

    Of an utterance that two microphones recorded the first is taken; some speakers have one microphone only.
    """
    found = find_audio(options.root)
    layouts = [[audio_file for audio_file in found if layout in audio_file.name.split("/")] for layout in _VCTK]
    chosen: dict[tuple[str, str], tuple[str, AudioFile]] = {}
    for audio_file in next((audio_files for audio_files in layouts if audio_files), found):
        if match := _UTTERANCE.fullmatch(PurePosixPath(audio_file.name).name):
            key, microphone = (match[1], match[2]), match[3] or "1"
            if key not in chosen or microphone < chosen[key][0]:
                chosen[key] = microphone, audio_file
    if not chosen:
        raise UserError(f"{options.root} holds no speakers such as p225/p225_001.wav: point --data at VCTK's folder")
    speakers = [speaker for speaker, _ in chosen]
    missing = sorted(_listed_speakers(options.root) - set(speakers))
    note = f"; no sound of {', '.join(missing)}, whom the corpus lists" if missing else ""
    return _read(options, "VCTK", [audio_file for _, audio_file in chosen.values()], speakers, note)


def _listed_speakers(root: Path) -> set[str]:
    """Speakers whom the corpus's lists and folders name: one without a single sound is missing."""
    if not root.is_dir():
        return set()
    named: set[str] = set()
    for base in (root, *(path for path in root.glob("VCTK*") if path.is_dir())):
        if (base / "speaker-info.txt").is_file():
            lines = (base / "speaker-info.txt").read_text(errors="replace").splitlines()
            words = [line.split()[0] for line in lines if line.strip()]
            named |= {f"p{word}" if word.isdigit() else word for word in words}  # the first edition leaves out the p
        for folder in (base, *(base / name for name in ("txt", *_VCTK) if (base / name).is_dir())):
            named |= {path.name for path in folder.iterdir() if path.is_dir()}
    return {name for name in named if re.fullmatch(r"[ps]\d+", name)}


def read_audio_folder(options: ReadOptions, audio_files: list[AudioFile]) -> Dataset:
    """Any sounds: by speaker where they lie in folders of their own, else the last tenth by name for validation."""
    folders = [audio_file.name.rpartition("/")[0] for audio_file in audio_files]
    if len(set(folders)) > 1:
        return _read(options, options.root.name, audio_files, folders)
    if len(audio_files) < MIN_RECORDINGS:
        raise UserError(f"{options.root} holds {len(audio_files)} sounds and at least {MIN_RECORDINGS} are needed: add some")
    audio = read_audio_files(audio_files, options.cache)
    tail = sorted({audio_file.name for audio_file in audio_files})[-(len(audio_files) // 10) :]
    kept = [row for row, name in enumerate(audio.recordings.names) if name not in tail]
    rest = [row for row, name in enumerate(audio.recordings.names) if name in tail]
    split = f"the last {len(tail):,} by name for validation, no test part; no folders tell voices apart"
    train, validation = audio.recordings.select(kept), fixed_crops(audio.recordings.select(rest))
    return Dataset(options.name, train, validation, None, f"{_describe(options.root.name, audio)}; {split}")


def _read(
    options: ReadOptions,
    title: str,
    audio_files: list[AudioFile],
    speakers: list[str],
    note: str = "",
    label: Callable[[str], int] | None = None,
) -> Dataset:
    speaker_ids = split_speakers(sorted(set(speakers)), options.root)
    audio = read_audio_files(audio_files, options.cache)
    train, validation, test = _by_speaker(audio.recordings, audio_files, speakers, speaker_ids)
    split = f"{len(set(speakers))} voices, of which {', '.join(speaker_ids[1])} for validation"
    split += f" and {', '.join(speaker_ids[2])} for test" if speaker_ids[2] else ", none for test"
    source = f"{_describe(title, audio)}; {split}{note}"
    labels = None if label is None else crop_labels(train, validation, test, label)
    return Dataset(
        options.name, train, fixed_crops(validation), fixed_crops(test) if speaker_ids[2] else None, source, labels=labels
    )


def _by_speaker(
    recordings: Recordings, audio_files: list[AudioFile], speakers: list[str], speaker_ids: Sequence[list[str]]
) -> list[Recordings]:
    speaker_of = dict(zip((audio_file.name for audio_file in audio_files), speakers, strict=True))
    return [
        recordings.select([row for row, name in enumerate(recordings.names) if speaker_of[name] in part])
        for part in speaker_ids
    ]


def split_speakers(speaker_ids: Sequence[str], root: Path) -> tuple[list[str], list[str], list[str]]:
    """Voices for training, validation and test: a tenth each for the last two, drawn by seed 0; few voices leave no test."""
    if len(speaker_ids) < 2:
        raise UserError(f"{root} holds one speaker only, {speaker_ids[0]}: add another, as validation needs a voice of its own")
    tenth = len(speaker_ids) // 10
    order = [speaker_ids[i] for i in permutation(len(speaker_ids), 0).tolist()]
    count = max(1, tenth)
    return sorted(order[count + tenth :]), sorted(order[:count]), sorted(order[count : count + tenth])


def fixed_crops(recordings: Recordings) -> Int16[Tensor, "n 1 crop"]:
    """The crops that numbers are reported on: 5,000 at most, evenly spread."""
    return _subsample(recordings.tiles())


def crop_labels(train: Recordings, validation: Recordings, test: Recordings, label: Callable[[str], int]) -> AudioLabels:
    """The label of every training recording and of every fixed crop of the others, by their names."""
    every = [torch.tensor([label(name) for name in part.names], dtype=torch.long) for part in (train, validation, test)]
    return AudioLabels(every[0], _subsample(every[1][validation.tile_rows()]), _subsample(every[2][test.tile_rows()]))


def _subsample(tiles: Tensor) -> Tensor:
    if len(tiles) <= VALIDATION:
        return tiles
    return tiles[torch.linspace(0, len(tiles) - 1, VALIDATION).long()]


def _describe(title: str, audio: AudioFiles) -> str:
    recordings = audio.recordings
    text = (
        f"{title}, {len(set(recordings.names)):,} recordings at {SAMPLE_RATE:,} Hz, mono, {LOUDNESS}; crops of {CROP:,} samples"
    )
    text += f", {recordings.num_short:,} shorter ones padded and masked" if recordings.num_short else ""
    return text + (f"; {audio.clipped:,} clipped ones kept" if audio.clipped else "")
