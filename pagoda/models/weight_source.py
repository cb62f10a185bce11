"""The tensors of a checkpoint, handed out by role: each must be there, have its shape, and in the end none be left."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from pagoda.core.errors import ModelFileError
from pagoda.kernels.base import Weight
from pagoda.models.weight_names import WeightNames
from pagoda.weights.checkpoint import Checkpoint

Progress = Callable[[int, int], None]
MAX_NAMES_SHOWN = 5


class WeightSource:
    """`progress` hears how many of the checkpoint's tensors have been taken, and how many there are."""

    def __init__(self, checkpoint: Checkpoint, names: WeightNames, progress: Progress | None) -> None:
        self._checkpoint = checkpoint
        self._file = checkpoint.path.name
        self._names = names
        self._progress = progress
        self._available = frozenset(checkpoint.names)
        self._taken: dict[str, Weight] = {}

    @property
    def weights(self) -> tuple[Weight, ...]:
        return tuple(self._taken.values())

    def take(self, role: str, shape: tuple[int, ...], layer: int | None = None) -> Weight:
        name = self._names.name(role, layer)
        if name not in self._available:
            raise ModelFileError(f"{self._file}: tensor {name} is missing")
        weight = self._checkpoint.tensor(name)
        if weight.shape != shape:
            raise ModelFileError(
                f"{self._file}: tensor {name} has the shape {weight.shape}; the configuration asks for {shape}"
            )
        self._taken[name] = weight
        if self._progress is not None:
            self._progress(len(self._taken), len(self._available))
        return weight

    def finish(self, ignorable: tuple[str, ...] = ()) -> None:
        """Refuse a checkpoint that holds a tensor nobody asked for: the model would not be the one it describes."""
        patterns = self._names.ignorable + ignorable
        left = [
            name
            for name in sorted(self._available - self._taken.keys())
            if not any(fnmatchcase(name, pattern) for pattern in patterns)
        ]
        if left:
            more = f" and {len(left) - MAX_NAMES_SHOWN} more" if len(left) > MAX_NAMES_SHOWN else ""
            shown = ", ".join(left[:MAX_NAMES_SHOWN])
            raise ModelFileError(f"{self._file}: tensors that this family does not know: {shown}{more}")
