"""Models on the Hugging Face hub: a folder of safetensors with its tokenizer, or one GGUF file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagoda.core.errors import InvalidRequest, PullError
from pagoda.weights.manifest import StoredFile
from pagoda.weights.sources.base import MODEL_NAME, FetchedModel, ProgressCallback, PullProgress, Source, Workspace
from pagoda.weights.sources.checked_file import read_chunks, remove_all_but, require_space, sync_file, sync_folder
from pagoda.weights.sources.range_download import TIMEOUT_SECONDS, RangeDownload

if TYPE_CHECKING:
    from huggingface_hub import HfApi

HUB_PREFIX = "hf:"
_NAME = re.compile(r"hf:(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<file>[A-Za-z0-9][\w./-]*))?")
# Code and pickles are never fetched: only what is listed here, and only from the top folder.
_TEXT_FILES = frozenset(
    {
        "LICENSE",
        "LICENSE.md",
        "LICENSE.txt",
        "NOTICE",
        "USE_POLICY.md",
        "added_tokens.json",
        "chat_template.jinja",
        "chat_template.json",
        "config.json",
        "generation_config.json",
        "merges.txt",
        "model.safetensors.index.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "vocab.json",
    }
)
_WEIGHTS = re.compile(r"[A-Za-z0-9][\w.-]*\.safetensors")


@dataclass(frozen=True)
class HubFile:
    path: str  # in the repository
    name: str  # in the store
    num_bytes: int
    digest: str  # sha256 of a large file, git's blob id of a small one

    def check(self, path: Path) -> str | None:
        """The sha256 of the file at `path` if it is this one."""
        sha256 = hashlib.sha256()
        blob = hashlib.sha1(f"blob {self.num_bytes}\0".encode(), usedforsecurity=False)
        for chunk in read_chunks(path):
            sha256.update(chunk)
            blob.update(chunk)
        return sha256.hexdigest() if self.digest in (sha256.hexdigest(), blob.hexdigest()) else None


@dataclass(frozen=True)
class HubSource(Source):
    repository: str
    file: str | None = None  # one GGUF, or the whole folder
    endpoint: str | None = None  # another hub than huggingface_hub's own setting

    @classmethod
    def parse(cls, name: str) -> HubSource:
        match = _NAME.fullmatch(name)
        if match is None:
            raise InvalidRequest("model", f"{name!r} is not of the form hf:owner/name or hf:owner/name:FILE.gguf")
        file = match["file"]
        if file is not None and not file.endswith(".gguf"):
            raise InvalidRequest("model", f"{file!r} is not a .gguf file; name the folder alone to fetch safetensors")
        return cls(match["repository"], file)

    def fetch(self, workspace: Workspace, progress: ProgressCallback) -> FetchedModel:
        api = self._api()
        progress(PullProgress(f"looking up {self.repository}"))
        info = self._lookup(api)
        wanted = self._choose(list(_listed_files(info.siblings or ())))
        remove_all_but(workspace.files, {file.name for file in wanted})
        remove_all_but(workspace.downloads, {_part_name(file) for file in wanted})
        require_space(workspace.downloads, _num_missing_bytes(wanted, workspace))
        fetcher = _FileFetcher(self.repository, info.sha, api.endpoint, workspace, progress)
        stored = tuple(fetcher.fetch(file) for file in wanted)
        licence = getattr(info.card_data, "license", None)
        return FetchedModel(
            model=MODEL_NAME if self.file else ".",
            origin=f"hf:{self.repository}@{info.sha}" + (f":{self.file}" if self.file else ""),
            files=stored,
            licence=licence if isinstance(licence, str) else None,
        )

    def _api(self) -> HfApi:
        try:
            import httpx2  # noqa: F401 - older versions of huggingface_hub stand on another client
            from huggingface_hub import HfApi
        except ImportError:
            fix = "pip install --upgrade 'pagoda[hub]'"
            raise PullError(f"hf: names need huggingface_hub 2 or newer; install it with: {fix}") from None
        return HfApi(endpoint=self.endpoint)

    def _lookup(self, api: HfApi) -> Any:
        import httpx2
        from huggingface_hub import errors

        try:
            return api.model_info(self.repository, files_metadata=True, timeout=TIMEOUT_SECONDS)
        except errors.GatedRepoError:
            raise PullError(
                f"{self.repository} is gated; accept its terms on {api.endpoint}, then: hf auth login"
            ) from None
        except errors.RepositoryNotFoundError:
            raise PullError(
                f"{api.endpoint} has no model {self.repository} (a private one needs: hf auth login)"
            ) from None
        except errors.OfflineModeIsEnabled:
            raise PullError("HF_HUB_OFFLINE is set, so the hub is not asked; unset it to pull") from None
        except httpx2.TransportError as error:
            reason = str(error) or type(error).__name__
            raise PullError(f"cannot reach {api.endpoint} ({reason}); check the network or HF_ENDPOINT") from None
        except (errors.HfHubHTTPError, ValueError) as error:
            raise PullError(f"{api.endpoint} gave no listing of {self.repository}: {_first_line(error)}") from None

    def _choose(self, files: list[HubFile]) -> list[HubFile]:
        ggufs = [file.path for file in files if file.path.endswith(".gguf")]
        if self.file is not None:
            for file in files:
                if file.path == self.file:
                    return [HubFile(file.path, MODEL_NAME, file.num_bytes, file.digest)]
            raise PullError(f"{self.repository} has no file {self.file}; it has: {', '.join(ggufs) or 'no .gguf'}")
        weights = [file for file in files if _WEIGHTS.fullmatch(file.path)]
        # Some repositories hold the same weights a second time under this name.
        weights = [file for file in weights if not file.path.startswith("consolidated")] or weights
        if not weights and ggufs:
            raise PullError(f"{self.repository} holds GGUF files; name one: hf:{self.repository}:{ggufs[0]}")
        if not weights:
            raise PullError(f"{self.repository} holds neither .safetensors nor .gguf files")
        return [file for file in files if file.path in _TEXT_FILES] + weights


@dataclass(frozen=True)
class _FileFetcher:
    repository: str
    revision: str
    endpoint: str
    workspace: Workspace
    progress: ProgressCallback

    def fetch(self, file: HubFile) -> StoredFile:
        target = self.workspace.files / file.name
        sha256 = file.check(target) if target.is_file() else None
        return StoredFile(file.name, file.num_bytes, sha256 or self._download(file, target))

    def _download(self, file: HubFile, target: Path) -> str:
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        part = self.workspace.downloads / _part_name(file)
        step = f"fetching {file.path}"
        self.progress(PullProgress(step, 0, file.num_bytes))
        url = hf_hub_url(self.repository, file.path, revision=self.revision, endpoint=self.endpoint)
        download = RangeDownload(get_session(), url, build_hf_headers(), file.num_bytes)
        download.run(part, lambda num_done: self.progress(PullProgress(step, num_done, file.num_bytes)))
        sha256 = file.check(part)
        if sha256 is None:
            part.unlink()
            raise PullError(f"{file.path} of {self.repository} arrived damaged and was removed; pull again")
        sync_file(part)
        part.replace(target)
        sync_folder(target.parent)
        return sha256


def _listed_files(siblings: Iterable[Any]) -> Iterable[HubFile]:
    for sibling in siblings:
        digest = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
        if sibling.size is not None and digest:
            yield HubFile(sibling.rfilename, sibling.rfilename, sibling.size, digest)


def _part_name(file: HubFile) -> str:
    # By content, so that a part of an older revision is continued only where the file did not change.
    return f"{file.digest}.part"


def _num_missing_bytes(files: list[HubFile], workspace: Workspace) -> int:
    num_bytes = 0
    for file in files:
        part = workspace.downloads / _part_name(file)
        num_present = part.stat().st_size if part.is_file() else 0
        num_bytes += 0 if (workspace.files / file.name).is_file() else max(0, file.num_bytes - num_present)
    return num_bytes


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
