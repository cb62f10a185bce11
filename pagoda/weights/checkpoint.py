"""One door to a model on disk: a GGUF file, a safetensors file or a Hugging Face folder, by path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from pagoda.core.errors import ModelFileError, ModelNotFound
from pagoda.weights.gguf import MAGIC, GGUFFile
from pagoda.weights.json_file import read_json_object
from pagoda.weights.mapped_file import MappedFile
from pagoda.weights.safetensors import INDEX_NAME, SafetensorsFile, ShardedSafetensors, file_inside
from pagoda.weights.tensor import QuantizedTensor, TensorFile, TensorInfo

CONFIG_NAME = "config.json"
SINGLE_NAME = "model.safetensors"
# Archives that run code when they are read.
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})


class Checkpoint:
    """A model's configuration and weights, as its files hold them: names are not mapped, nothing is decoded."""

    def __init__(
        self, kind: Literal["gguf", "huggingface"], path: Path, config: Mapping[str, Any], file: TensorFile
    ) -> None:
        self.kind = kind
        self.path = path
        self.config = config
        self._file = file

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._file.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._file.tensors

    def tensor(self, name: str) -> QuantizedTensor:
        info = self._file.tensors.get(name)
        if info is None:
            raise ModelFileError(f"{self.path.name}: has no tensor named {name!r}")
        return QuantizedTensor.from_bytes(info, self._file.raw(name))

    def raw(self, name: str) -> np.ndarray:
        """The bytes of a tensor as they lie in the file."""
        return self._file.raw(name)

    def headers(self) -> Iterator[bytes]:
        """What stands before the tensors in each file."""
        return self._file.headers()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class NoTensors:
    """Stands for the weights of a folder of which only the configuration counts."""

    tensors: Mapping[str, TensorInfo] = {}

    def raw(self, name: str) -> np.ndarray:
        raise ModelFileError(f"no weights were opened, {name} among them")

    def headers(self) -> Iterator[bytes]:
        return iter(())

    def close(self) -> None:
        """Nothing was opened."""


def open_configuration(folder: str | Path) -> Checkpoint:
    """A Hugging Face folder without its weights, which need not be there."""
    folder = Path(folder)
    if not (folder / CONFIG_NAME).exists():
        raise ModelFileError(f"{folder.name}: has no {CONFIG_NAME}")
    return Checkpoint("huggingface", folder, read_json_object(file_inside(folder, CONFIG_NAME)), NoTensors())


def open_checkpoint(path: str | Path) -> Checkpoint:
    path = Path(path)
    if path.is_dir():
        return _open_folder(path)
    # A store may name files by digest, so what counts is how the file begins, not how its name ends.
    with MappedFile.open(path) as mapped:
        is_gguf = mapped.buffer[: len(MAGIC)] == MAGIC
    if is_gguf or path.suffix == ".gguf":
        return _open_gguf(path)
    if path.suffix == ".safetensors":
        return _open_hugging_face(path.parent, path)
    raise ModelFileError(_refusal(path.name, [path]))


def _open_gguf(path: Path) -> Checkpoint:
    file = GGUFFile.open(path)
    try:
        num_parts = file.metadata.get("split.count", 1)
        if type(num_parts) is not int or num_parts > 1:
            raise ModelFileError(f"{path.name}: is one part of a split model; join the parts into one file first")
        return Checkpoint("gguf", path, file.metadata, file)
    except BaseException:
        file.close()
        raise


def _open_folder(folder: Path) -> Checkpoint:
    try:
        files = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise ModelFileError(f"{folder.name}: cannot be read ({error.strerror})") from None
    weights = [entry for entry in files if entry.suffix == ".safetensors"]
    if weights:
        return _open_hugging_face(folder, _single_file(folder, weights))
    models = [entry for entry in files if entry.suffix == ".gguf"]
    if len(models) == 1:
        return _open_gguf(file_inside(folder, models[0].name))
    if models:
        raise ModelFileError(f"{folder.name}: holds {len(models)} GGUF files; name the one to open")
    if (folder / CONFIG_NAME).exists() or any(entry.suffix in PICKLE_SUFFIXES for entry in files):
        raise ModelFileError(_refusal(folder.name, files))
    raise ModelNotFound(f"{folder.name}: the folder holds no model (no .safetensors and no .gguf file)")


def _single_file(folder: Path, weights: list[Path]) -> Path | None:
    """The one file of an unsharded model, or None where an index names the shards."""
    if (folder / INDEX_NAME).exists():
        return None
    if len(weights) == 1:
        return file_inside(folder, weights[0].name)
    if any(entry.name == SINGLE_NAME for entry in weights):
        return file_inside(folder, SINGLE_NAME)
    raise ModelFileError(f"{folder.name}: holds {len(weights)} .safetensors files and no {INDEX_NAME}")


def _open_hugging_face(folder: Path, single: Path | None) -> Checkpoint:
    if not (folder / CONFIG_NAME).exists():
        raise ModelFileError(f"{folder.name}: has weights but no {CONFIG_NAME}; put the model's own beside them")
    config = read_json_object(file_inside(folder, CONFIG_NAME))
    file: TensorFile = ShardedSafetensors.open(folder) if single is None else SafetensorsFile.open(single)
    return Checkpoint("huggingface", single or folder, config, file)


def _refusal(name: str, files: list[Path]) -> str:
    if any(entry.suffix in PICKLE_SUFFIXES for entry in files):
        return (
            f"{name}: .bin, .pt, .pth and .ckpt weights can run code when read and are refused; use safetensors or GGUF"
        )
    return f"{name}: is neither GGUF nor safetensors"
