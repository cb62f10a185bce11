"""What the store asks of a source: fill a folder with checked files, and waste nothing fetched earlier."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagoda.weights.manifest import StoredFile

MODEL_NAME = "model.gguf"


@dataclass(frozen=True)
class PullProgress:
    """How far one step of a pull has come. A new `step` means that the one before it has ended."""

    step: str
    num_done: int = 0
    num_total: int | None = None  # unknown


ProgressCallback = Callable[[PullProgress], None]


def no_progress(progress: PullProgress) -> None:
    """For callers that show nothing."""


@dataclass(frozen=True)
class Workspace:
    """The two folders of one pull. Both outlive a killed pull and are handed to the next one.

    A file enters `files` only complete and checked, by a rename; `downloads` holds what is still under way.
    """

    downloads: Path
    files: Path


@dataclass(frozen=True)
class FetchedModel:
    model: str  # the file to load, or "." for a folder of safetensors
    origin: str  # where exactly the bytes came from
    files: tuple[StoredFile, ...]
    licence: str | None = None


class Source(ABC):
    """One way to obtain a model's files."""

    @abstractmethod
    def fetch(self, workspace: Workspace, progress: ProgressCallback) -> FetchedModel:
        """Leave exactly the files of the model in `workspace.files`, reusing what is there already.

        Raises PullError when the bytes cannot be had or are not the right ones.
        """
