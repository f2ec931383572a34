"""The header of a compressed file: what it is, its format version and the model that wrote it.

byte  0      B1         B marks the file, 1 is the format version
bytes 1-3    hash       the first three bytes of the model's hash
bytes 4-     payload    the range coder's bytes; may end anywhere
"""

from __future__ import annotations

from dataclasses import dataclass

from anytime.core.config import read_json
from anytime.core.errors import UserError
from anytime.models.registry import BUNDLED_DIR, CONFIG, bundled_names

MARK = 0xB0  # no text in ASCII or UTF-8 begins with B0 to BF, and no common format of images or archives
VERSION = 1  # up to 15
HASH_BYTES = 3  # one other model in 16.7 million has the same three
HEADER_BYTES = 1 + HASH_BYTES
MAX_BYTES = 1 << 20
"""The most that is read of a file: 3 bytes for each of 350,000 codes."""


@dataclass(frozen=True, slots=True)
class CompressedFile:
    """A file, taken apart."""

    model: str  # the first six digits of the model's hash
    payload: bytes


def pack(model_hash: str, payload: bytes) -> bytes:
    """Return the bytes of a file.

    >>> pack("984366565497868b", b"\\x01").hex()
    'b198436601'
    """
    return bytes([MARK | VERSION]) + bytes.fromhex(model_hash)[:HASH_BYTES] + payload


def unpack(data: bytes, name: str = "`data`") -> CompressedFile:
    """Take a file apart; refuse other files, other versions and a cut inside the header."""
    if data and data[0] & 0xF0 != MARK:
        raise UserError(f"{name} is not a file of this version of `anytime compress`; give one that it wrote")
    if data and (version := data[0] & 0x0F) != VERSION:
        raise UserError(f"{name} has format version {version}, this program reads version {VERSION}; update the program")
    if len(data) < HEADER_BYTES:
        raise UserError(f"{name} is cut inside its header: it has {len(data)} of {HEADER_BYTES} bytes; restore its beginning")
    return CompressedFile(data[1:HEADER_BYTES].hex(), data[HEADER_BYTES:])


def check_model(file: CompressedFile, model_hash: str, name: str = "`data`") -> None:
    """Refuse a file of another model."""
    if not model_hash.startswith(file.model):
        ours = model_hash[: 2 * HASH_BYTES]
        raise UserError(f"{name} was compressed with another model ({file.model}…, this is {ours}…); set `model` to that model")


def find_bundled_model(file: CompressedFile, name: str) -> str:
    """Return the name of the bundled model that wrote a file."""
    for bundled in bundled_names():
        if str(read_json(BUNDLED_DIR / bundled / CONFIG).get("hash", "")).startswith(file.model):
            return bundled
    known = ", ".join(bundled_names())
    raise UserError(f"{name} was compressed with a model ({file.model}…) that is not bundled ({known}); name it with `model`")
