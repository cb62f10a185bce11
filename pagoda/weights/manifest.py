"""The record beside every stored model: where it came from and which bytes it consists of."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pagoda.core.errors import ModelFileError
from pagoda.core.unreadable import UNREADABLE

MANIFEST_NAME = "manifest.json"


class StoredFile(msgspec.Struct, frozen=True):
    """One file of a model, its name relative to the model's folder."""

    name: str
    num_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A complete model in the store. It is written last, so a folder without one is not a model."""

    name: str
    source: str
    model: str  # the file to load, or "." where the folder itself is the model
    files: tuple[StoredFile, ...]
    pulled_at: str  # UTC, ISO 8601
    licence: str | None = None
    num_parameters: int | None = None
    quantization: str | None = None

    @property
    def num_bytes(self) -> int:
        return sum(file.num_bytes for file in self.files)


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def read_manifest(path: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except UNREADABLE as error:
        raise ModelFileError(f"{path} is damaged ({error}); remove the model and pull it again") from None
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from None
    for name in (manifest.model, *(file.name for file in manifest.files)):
        if name != "." and (name.startswith(".") or Path(name).name != name):
            raise ModelFileError(f"{path} names {name!r}, outside its folder; remove the model and pull it again")
    return manifest
