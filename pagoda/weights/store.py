"""The model store: names to files on disk. A model is there whole or not at all (see docs/design/model-store.md)."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from pathlib import Path

from pagoda.core.environment import pagoda_home
from pagoda.core.errors import InvalidRequest, ModelFileError, ModelNotFound, PagodaError, PullError
from pagoda.weights.description import describe_model
from pagoda.weights.folder_lock import exclusive_lock
from pagoda.weights.gguf import MAGIC
from pagoda.weights.manifest import MANIFEST_NAME, Manifest, StoredFile, encode_manifest, read_manifest
from pagoda.weights.registry import DEFAULT_MODEL, KNOWN_MODELS, KnownModel, check_name, find_source, is_name
from pagoda.weights.sources.base import FetchedModel, ProgressCallback, PullProgress, Source, Workspace, no_progress
from pagoda.weights.sources.checked_file import hash_file, sync_file, sync_folder
from pagoda.weights.sources.hugging_face import HUB_PREFIX

# A name holds neither @ nor +, so that each name has one folder and each folder one name.
_TO_FOLDER = str.maketrans(":/", "@+")
_TO_NAME = str.maketrans("@+", ":/")


class ModelStore:
    def __init__(self, home: Path | None = None, known_models: Mapping[str, KnownModel] | None = None) -> None:
        self.home = pagoda_home() if home is None else home
        self.known_models = KNOWN_MODELS if known_models is None else known_models
        self._models = self.home / "models"

    def names(self) -> list[str]:
        """Every model here, in alphabetical order, damaged ones included."""
        if not self._models.is_dir():
            return []
        return sorted(path.parent.name.translate(_TO_NAME) for path in self._models.glob(f"[!.]*/{MANIFEST_NAME}"))

    def get(self, name: str) -> Manifest | None:
        """The manifest of a complete model, None where there is none; ModelFileError where it cannot be trusted."""
        folder = self.folder(name)
        if not (folder / MANIFEST_NAME).is_file():
            return None
        manifest = read_manifest(folder / MANIFEST_NAME)
        if manifest.name != name:
            raise ModelFileError(f"{folder} holds the manifest of {manifest.name!r}; remove {name} and pull it again")
        return manifest

    def folder(self, name: str) -> Path:
        return self._inside(self._models / check_name(name).translate(_TO_FOLDER))

    def path(self, manifest: Manifest) -> Path:
        """What a loader opens: the GGUF file, or the folder of safetensors."""
        path = self._inside(self.folder(manifest.name) / manifest.model)
        if not path.exists():
            raise ModelFileError(f"{path} is missing; fix: pagoda pull --verify {manifest.name}")
        return path

    def manifest_at(self, path: Path) -> Manifest | None:
        """The manifest of the model that `path` returned, None for a path that is not of this store."""
        folder = path if path.is_dir() else path.parent
        if folder.parent != self._models:
            return None
        return self.get(folder.name.translate(_TO_NAME))

    def source_of(self, name: str) -> Source | None:
        return find_source(name, self.known_models)

    def unknown(self, name: str) -> ModelNotFound:
        """The error for a name that is neither here nor known, with the nearest names that are."""
        names = sorted({*self.known_models, *self.names()})
        close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
        if close:
            hint = f"did you mean {' or '.join(close)}? (pagoda pull {close[0]})"
        else:
            hint = f"known names: {', '.join(names)} (try: pagoda pull {DEFAULT_MODEL})"
        return ModelNotFound(f"no model is called {name!r}; {hint}")

    def pull(self, name: str, progress: ProgressCallback = no_progress, *, replace: bool = False) -> Manifest:
        """Fetch the model unless it is here; a pull of the same model by another process is waited for.

        With `replace` a model that is here is fetched anew, and stays until the new one is complete.
        """
        source = self.source_of(name)
        if source is None:
            raise self.unknown(name)
        try:
            with self._lock(name, lambda: progress(PullProgress(f"waiting for another pull of {name}"))):
                manifest = None if replace else self.get(name)
                if manifest is not None:
                    return manifest
                return self._fetch(name, source, progress)
        except OSError as error:
            raise PullError(f"cannot store {name} under {self.home}: {error.strerror or error}") from error

    def verify(self, manifest: Manifest, progress: ProgressCallback = no_progress) -> None:
        """Read every byte of the model again; ModelFileError names the first file that is not what was pulled."""
        folder = self.folder(manifest.name)
        for file in manifest.files:
            step = f"verifying {file.name}"
            progress(PullProgress(step, 0, file.num_bytes))
            reason = _damage(self._inside(folder / file.name), file, progress, step)
            if reason:
                raise ModelFileError(
                    f"{manifest.name}: {file.name} {reason}; fix: pagoda pull --verify {manifest.name}"
                )

    def remove(self, name: str) -> int:
        """Delete the model and what an unfinished pull of it left; returns the bytes freed."""
        folder, work = self.folder(name), self._work(name)
        if not folder.exists() and not work.exists():
            raise ModelNotFound(f"{name} is not in the store; see: pagoda list")
        try:
            with self._lock(name, lambda: _refuse(f"{name} is being pulled by another process; stop that one first")):
                num_bytes = _num_bytes_under(folder) + _num_bytes_under(work)
                self._discard(folder, work)
                if work.exists():
                    shutil.rmtree(work)
                return num_bytes
        except OSError as error:
            raise PagodaError(f"cannot remove {name}: {error.strerror or error}") from error

    def _inside(self, path: Path) -> Path:
        """Refuse a path that links lead out of the store."""
        if not path.resolve().is_relative_to(self._models.resolve()):
            raise InvalidRequest("model", f"{path} leads out of the model store")
        return path

    def _work(self, name: str) -> Path:
        return self._inside(self._models / ".pulling" / check_name(name).translate(_TO_FOLDER))

    def _lock(self, name: str, on_wait: Callable[[], None]) -> AbstractContextManager[None]:
        return exclusive_lock(self._models / ".locks" / check_name(name).translate(_TO_FOLDER), on_wait)

    def _fetch(self, name: str, source: Source, progress: ProgressCallback) -> Manifest:
        work = self._work(name)
        workspace = Workspace(downloads=work / "downloads", files=work / "files")
        workspace.downloads.mkdir(parents=True, exist_ok=True)
        workspace.files.mkdir(exist_ok=True)
        try:
            manifest = self._describe(name, source.fetch(workspace, progress), workspace.files)
            self._publish(workspace, manifest)
        except ModelFileError:
            shutil.rmtree(work, ignore_errors=True)
            raise
        finally:
            _remove_empty(workspace.downloads, workspace.files, work)
        shutil.rmtree(work, ignore_errors=True)
        return manifest

    def _describe(self, name: str, fetched: FetchedModel, files: Path) -> Manifest:
        """What is fetched but is no model that can be read here raises ModelFileError, and is not kept."""
        facts = self.known_models.get(name) or describe_model(files / fetched.model)
        return Manifest(
            name=name,
            source=fetched.origin,
            model=fetched.model,
            files=fetched.files,
            pulled_at=datetime.now(UTC).isoformat(timespec="seconds"),
            licence=fetched.licence,
            num_parameters=facts.num_parameters,
            quantization=facts.quantization,
        )

    def _publish(self, workspace: Workspace, manifest: Manifest) -> None:
        """The rename is the moment at which the model exists."""
        path = workspace.files / MANIFEST_NAME
        path.write_bytes(encode_manifest(manifest))
        sync_file(path)
        sync_folder(workspace.files)
        folder = self.folder(manifest.name)
        self._discard(folder, workspace.files.parent)
        workspace.files.rename(folder)
        sync_folder(self._models)

    def _discard(self, folder: Path, work: Path) -> None:
        """Take a model's folder out of sight in one step; it is deleted at leisure with the work folder."""
        if not folder.exists():
            return
        work.mkdir(parents=True, exist_ok=True)
        discarded = work / "discarded"
        shutil.rmtree(discarded, ignore_errors=True)
        folder.rename(discarded)


def resolve_model(name_or_path: str | Path, store: ModelStore | None = None) -> Path:
    """What to load for a name in the store, a .gguf file or a folder in Hugging Face form.

    A name goes before a file of the same name; write `./NAME` to mean the file.
    """
    text = str(name_or_path)
    if _is_path(name_or_path):
        return _check_path(Path(text).expanduser())
    store = store or ModelStore()
    manifest = store.get(text)
    if manifest is not None:
        return store.path(manifest)
    if store.source_of(text) is not None:
        raise ModelNotFound(f"{text} is not pulled yet; fix: pagoda pull {text}")
    if Path(text).exists():
        return _check_path(Path(text))
    raise store.unknown(text)


def ensure_model(
    name_or_path: str | Path, progress: ProgressCallback = no_progress, store: ModelStore | None = None
) -> Path:
    """Like `resolve_model`, but a model that can be pulled is pulled."""
    text = str(name_or_path)
    store = store or ModelStore()
    if _is_path(name_or_path) or store.source_of(text) is None:
        return resolve_model(name_or_path, store)
    return store.path(store.get(text) or store.pull(text, progress))


def _is_path(name_or_path: str | Path) -> bool:
    if isinstance(name_or_path, Path):
        return True
    if name_or_path.startswith(HUB_PREFIX):
        return False
    looks_like_one = name_or_path.startswith(("/", ".", "~")) or name_or_path.endswith((".gguf", "/"))
    return looks_like_one or (not is_name(name_or_path) and Path(name_or_path).exists())


def _check_path(path: Path) -> Path:
    if path.is_file():
        if _begins_like_gguf(path):
            return path
        raise ModelFileError(f"{path} is not a GGUF file")
    if not path.is_dir():
        raise ModelNotFound(f"there is no file or folder {path}")
    if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
        raise ModelNotFound(f"{path} is not a model folder: it needs config.json and *.safetensors")
    return path


def _begins_like_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror or error}") from None


def _damage(path: Path, file: StoredFile, progress: ProgressCallback, step: str) -> str | None:
    if not path.is_file():
        return "is missing"
    num_bytes = path.stat().st_size
    if num_bytes != file.num_bytes:
        return f"has {num_bytes} bytes where {file.num_bytes} were pulled"
    sha256 = hash_file(path, lambda num_done: progress(PullProgress(step, num_done, file.num_bytes)))
    return None if sha256 == file.sha256 else f"has sha256 {sha256} where {file.sha256} was pulled"


def _remove_empty(*folders: Path) -> None:
    """A pull that fetched nothing leaves nothing."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _num_bytes_under(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _refuse(message: str) -> None:
    raise PagodaError(message)
