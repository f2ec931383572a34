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
from anytime.data.audio_files import Library, Sound, find_sounds, read_sounds
from anytime.data.audio_io import LOUDNESS, RATE
from anytime.data.dataset import VALIDATION, Dataset, Labels, Request
from anytime.data.recordings import CROP, Recordings

FEWEST = 10  # recordings without speakers: a tenth of fewer leaves nothing for validation
_DIGIT = re.compile(r"(\d)_(\d+)_\d+\.\w+")  # digit_speaker_take
_UTTERANCE = re.compile(r"([ps]\d+)_(\d+)(?:_mic(\d))?\.\w+")  # speaker_utterance[_microphone]
_VCTK = ("wav48_silence_trimmed", "wav48")  # the better one first; neither: the speakers' folders themselves


def read_audiomnist(request: Request) -> Dataset:
    """AudioMNIST: data/NN/D_NN_R.wav, the same without data/, or zip files of such folders."""
    return _read(request, "AudioMNIST", *_digit_sounds(request.where), label=digit_of)


def _digit_sounds(where: Path) -> tuple[list[Sound], list[str]]:
    """The sounds and their speakers."""
    zips = sorted(path for path in where.glob("*.zip") if "audiomnist" in path.name.lower()) if where.is_dir() else []
    found = [sound for place in zips or [where] for sound in find_sounds(place)]
    sounds = [sound for sound in found if _DIGIT.fullmatch(PurePosixPath(sound.name).name)]
    if not sounds:
        raise UserError(f"{where} holds no NN/D_NN_R.wav: point --data at AudioMNIST's folder or its zip files")
    return sounds, [_digit(sound.name)[2] for sound in sounds]


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


def read_vctk(request: Request) -> Dataset:
    """VCTK: wav48_silence_trimmed/ or wav48/ with a folder for each speaker, or those folders themselves.

    Of an utterance that two microphones recorded the first is taken; some speakers have one microphone only.
    """
    found = find_sounds(request.where)
    layouts = [[sound for sound in found if layout in sound.name.split("/")] for layout in _VCTK]
    taken: dict[tuple[str, str], tuple[str, Sound]] = {}
    for sound in next((sounds for sounds in layouts if sounds), found):
        if match := _UTTERANCE.fullmatch(PurePosixPath(sound.name).name):
            key, microphone = (match[1], match[2]), match[3] or "1"
            if key not in taken or microphone < taken[key][0]:
                taken[key] = microphone, sound
    if not taken:
        raise UserError(f"{request.where} holds no speakers such as p225/p225_001.wav: point --data at VCTK's folder")
    speakers = [speaker for speaker, _ in taken]
    missing = sorted(_announced(request.where) - set(speakers))
    said = f"; no sound of {', '.join(missing)}, whom the corpus lists" if missing else ""
    return _read(request, "VCTK", [sound for _, sound in taken.values()], speakers, said)


def _announced(where: Path) -> set[str]:
    """Speakers whom the corpus's lists and folders name: one without a single sound is missing."""
    if not where.is_dir():
        return set()
    named: set[str] = set()
    for root in (where, *(path for path in where.glob("VCTK*") if path.is_dir())):
        if (root / "speaker-info.txt").is_file():
            lines = (root / "speaker-info.txt").read_text(errors="replace").splitlines()
            words = [line.split()[0] for line in lines if line.strip()]
            named |= {f"p{word}" if word.isdigit() else word for word in words}  # the first edition leaves out the p
        for folder in (root, *(root / name for name in ("txt", *_VCTK) if (root / name).is_dir())):
            named |= {path.name for path in folder.iterdir() if path.is_dir()}
    return {name for name in named if re.fullmatch(r"[ps]\d+", name)}


def read_sound_folder(request: Request, sounds: list[Sound]) -> Dataset:
    """Any sounds: by speaker where they lie in folders of their own, else the last tenth by name for validation."""
    folders = [sound.name.rpartition("/")[0] for sound in sounds]
    if len(set(folders)) > 1:
        return _read(request, request.where.name, sounds, folders)
    if len(sounds) < FEWEST:
        raise UserError(f"{request.where} holds {len(sounds)} sounds and at least {FEWEST} are needed: add some")
    library = read_sounds(sounds, request.cache)
    tail = sorted({sound.name for sound in sounds})[-(len(sounds) // 10) :]
    kept = [row for row, name in enumerate(library.recordings.names) if name not in tail]
    rest = [row for row, name in enumerate(library.recordings.names) if name in tail]
    split = f"the last {len(tail):,} by name for validation, no test part; no folders tell voices apart"
    train, validation = library.recordings.only(kept), fixed(library.recordings.only(rest))
    return Dataset(request.name, train, validation, None, f"{_described(request.where.name, library)}; {split}")


def _read(
    request: Request,
    title: str,
    sounds: list[Sound],
    speakers: list[str],
    said: str = "",
    label: Callable[[str], int] | None = None,
) -> Dataset:
    voices = parts(sorted(set(speakers)), request.where)
    library = read_sounds(sounds, request.cache)
    train, validation, test = _by_voice(library.recordings, sounds, speakers, voices)
    split = f"{len(set(speakers))} voices, of which {', '.join(voices[1])} for validation"
    split += f" and {', '.join(voices[2])} for test" if voices[2] else ", none for test"
    source = f"{_described(title, library)}; {split}{said}"
    labels = None if label is None else labelled(train, validation, test, label)
    return Dataset(request.name, train, fixed(validation), fixed(test) if voices[2] else None, source, labels=labels)


def _by_voice(
    recordings: Recordings, sounds: list[Sound], speakers: list[str], voices: Sequence[list[str]]
) -> list[Recordings]:
    of = dict(zip((sound.name for sound in sounds), speakers, strict=True))
    return [recordings.only([row for row, name in enumerate(recordings.names) if of[name] in part]) for part in voices]


def parts(voices: Sequence[str], where: Path) -> tuple[list[str], list[str], list[str]]:
    """Voices for training, validation and test: a tenth each for the last two, drawn by seed 0; few voices leave no test."""
    if len(voices) < 2:
        raise UserError(f"{where} holds one speaker only, {voices[0]}: add another, as validation needs a voice of its own")
    tenth = len(voices) // 10
    order = [voices[i] for i in permutation(len(voices), 0).tolist()]
    count = max(1, tenth)
    return sorted(order[count + tenth :]), sorted(order[:count]), sorted(order[count : count + tenth])


def fixed(recordings: Recordings) -> Int16[Tensor, "n 1 crop"]:
    """The crops that numbers are reported on: 5,000 at most, evenly spread."""
    return _spread(recordings.tiles())


def labelled(train: Recordings, validation: Recordings, test: Recordings, label: Callable[[str], int]) -> Labels:
    """The label of every training recording and of every fixed crop of the others, by their names."""
    every = [torch.tensor([label(name) for name in part.names], dtype=torch.long) for part in (train, validation, test)]
    return Labels(every[0], _spread(every[1][validation.tile_rows()]), _spread(every[2][test.tile_rows()]))


def _spread(tiles: Tensor) -> Tensor:
    if len(tiles) <= VALIDATION:
        return tiles
    return tiles[torch.linspace(0, len(tiles) - 1, VALIDATION).long()]


def _described(title: str, library: Library) -> str:
    recordings = library.recordings
    text = f"{title}, {len(set(recordings.names)):,} recordings at {RATE:,} Hz, mono, {LOUDNESS}; crops of {CROP:,} samples"
    text += f", {recordings.short:,} shorter ones padded and masked" if recordings.short else ""
    return text + (f"; {library.clipped:,} clipped ones kept" if library.clipped else "")
