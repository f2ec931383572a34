"""Audio datasets: VCTK and AudioMNIST in their published layouts, and any folder of audio files.

No speaker of the validation or the test set occurs in another set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

import torch
from jaxtyping import Int16
from torch import Tensor

from anytime.core.errors import UserError
from anytime.core.files import read_limited
from anytime.core.random import permutation
from anytime.data.audio_io import LOUDNESS, SAMPLE_RATE, SUFFIXES, read_recordings
from anytime.data.dataset import VALIDATION, Dataset, Labels, ReadOptions
from anytime.data.files import DataFile, find_files
from anytime.data.recordings import CROP, Recordings

MIN_RECORDINGS = 10  # without speakers: a tenth of fewer leaves no recording for validation
_DIGIT = re.compile(r"(\d)_(\d+)_\d+\.\w+")  # digit_speaker_take
_UTTERANCE = re.compile(r"([ps]\d+)_(\d+)(?:_mic(\d))?\.\w+")  # speaker_utterance[_microphone]
_MAX_LIST = 1 << 20  # bytes of speaker-info.txt: the published one has 6 thousand
_VCTK = ("wav48_silence_trimmed", "wav48")  # the first is preferred; without both, the speakers' folders are at the top


def read_audiomnist(options: ReadOptions) -> Dataset:
    """Read AudioMNIST: data/NN/D_NN_R.wav, the same without data/, or zip files of such folders."""
    root = options.root
    zips = sorted(path for path in root.glob("*.zip") if "audiomnist" in path.name.lower()) if root.is_dir() else []
    found = [file for place in zips or [root] for file in find_files(place, SUFFIXES)]
    speakers = {file: match[2] for file in found if (match := _DIGIT.fullmatch(PurePosixPath(file.name).name))}
    if not speakers:
        raise UserError(f"{root} holds no NN/D_NN_R.wav: point `data` at AudioMNIST's folder or its zip files")
    return _read_by_speaker(options, "AudioMNIST", speakers, label=lambda name: int(PurePosixPath(name).name[0]))


def read_vctk(options: ReadOptions) -> Dataset:
    """Read VCTK: wav48_silence_trimmed/ or wav48/ with a folder for each speaker, or those folders themselves.

    If two microphones recorded an utterance, the first is used; some speakers have the second only.
    """
    found = find_files(options.root, SUFFIXES)
    layouts = [[file for file in found if layout in file.name.split("/")] for layout in _VCTK]
    chosen: dict[tuple[str, str], tuple[str, DataFile]] = {}
    for file in next((files for files in layouts if files), found):
        if match := _UTTERANCE.fullmatch(PurePosixPath(file.name).name):
            key, microphone = (match[1], match[2]), match[3] or "1"
            if key not in chosen or microphone < chosen[key][0]:
                chosen[key] = microphone, file
    if not chosen:
        raise UserError(f"{options.root} holds no speakers such as p225/p225_001.wav: point `data` at VCTK's folder")
    speakers = {file: speaker for (speaker, _), (_, file) in chosen.items()}
    missing = sorted(_listed_speakers(options.root) - set(speakers.values()))
    note = f"; no audio of {', '.join(missing)}, listed by the corpus" if missing else ""
    return _read_by_speaker(options, "VCTK", speakers, note)


def _listed_speakers(root: Path) -> set[str]:
    """Return the speakers that the corpus names in its lists and folders."""
    if not root.is_dir():
        return set()
    named: set[str] = set()
    for base in (root, *(path for path in root.glob("VCTK*") if path.is_dir())):
        if (base / "speaker-info.txt").is_file():
            lines = read_limited(base / "speaker-info.txt", _MAX_LIST).decode(errors="replace").splitlines()
            words = [line.split()[0] for line in lines if line.strip()]
            named |= {f"p{word}" if word.isdigit() else word for word in words}  # the first edition omits the p
        for folder in (base, *(base / name for name in ("txt", *_VCTK) if (base / name).is_dir())):
            named |= {path.name for path in folder.iterdir() if path.is_dir()}
    return {name for name in named if re.fullmatch(r"[ps]\d+", name)}


def read_audio_folder(options: ReadOptions, files: list[DataFile]) -> Dataset:
    """Read any audio files: split by folder (one per speaker) if there are several, else the last tenth by name."""
    folders = {file: file.name.rpartition("/")[0] for file in files}
    if len(set(folders.values())) > 1:
        return _read_by_speaker(options, options.root.name, folders)
    if len(files) < MIN_RECORDINGS:
        raise UserError(f"{options.root} holds {len(files)} recordings and at least {MIN_RECORDINGS} are needed: add some")
    tail = len(files) // 10
    split = f"the last {tail:,} by name for validation, no test set; speakers unknown, as there are no folders"
    return _read_parts(options, options.root.name, files, (files[:-tail], files[-tail:], []), split)


def _read_by_speaker(
    options: ReadOptions, title: str, speakers: dict[DataFile, str], note: str = "", label: Callable[[str], int] | None = None
) -> Dataset:
    ids = split_speakers(sorted(set(speakers.values())), options.root)
    parts = [[file for file, speaker in speakers.items() if speaker in part] for part in ids]
    split = f"{len(set(speakers.values()))} speakers, of which {', '.join(ids[1])} for validation"
    split += f" and {', '.join(ids[2])} for test" if ids[2] else ", none for test"
    return _read_parts(options, title, list(speakers), parts, split + note, label)


def _read_parts(
    options: ReadOptions,
    title: str,
    files: list[DataFile],
    parts: Sequence[list[DataFile]],
    split: str,
    label: Callable[[str], int] | None = None,
) -> Dataset:
    recordings, clipped = read_recordings(files, options.cache)
    train, validation, test = (recordings.select({file.name for file in part}) for part in parts)
    source = f"{title}, {len(set(recordings.names)):,} recordings at {SAMPLE_RATE:,} Hz, mono, {LOUDNESS}"
    source += f"; crops of {CROP:,} samples"
    source += f", {recordings.num_short:,} shorter ones padded" if recordings.num_short else ""
    source += f"; {clipped:,} clipped ones kept; {split}" if clipped else f"; {split}"
    labels = None if label is None else crop_labels(train, validation, test, label)
    held_out = fixed_crops(test) if parts[2] else None
    return Dataset(options.name, train, fixed_crops(validation), held_out, source, labels=labels)


def split_speakers(speakers: Sequence[str], root: Path) -> tuple[list[str], list[str], list[str]]:
    """Split speakers into training, validation and test by seed 0: a tenth each for the last two."""
    if len(speakers) < 2:
        raise UserError(f"{root} holds one speaker only, {speakers[0]}: add another, since validation needs its own speaker")
    order, tenth = [speakers[i] for i in permutation(len(speakers), 0).tolist()], len(speakers) // 10
    count = max(1, tenth)
    return sorted(order[count + tenth :]), sorted(order[:count]), sorted(order[count : count + tenth])


def fixed_crops(recordings: Recordings) -> Int16[Tensor, "n 1 crop"]:
    """Return the crops that metrics are computed on: at most 5,000, evenly spaced."""
    return _subsample(recordings.tiles())


def crop_labels(train: Recordings, validation: Recordings, test: Recordings, label: Callable[[str], int]) -> Labels:
    """Label every training recording and every fixed crop of the other sets by its file name."""
    every = [torch.tensor([label(name) for name in part.names], dtype=torch.long) for part in (train, validation, test)]
    return Labels(every[0], _subsample(every[1][validation.tile_rows()]), _subsample(every[2][test.tile_rows()]))


def _subsample(tiles: Tensor) -> Tensor:
    return tiles if len(tiles) <= VALIDATION else tiles[torch.linspace(0, len(tiles) - 1, VALIDATION).long()]
