"""Races, looked for where programs are interpreted one after the other: on a GPU they show once in a while, if at all.

Every access to memory is noted. Two programs of a launch meet if one writes what the other reads or writes. And a
kernel that is launched early runs beside those ahead of it until it waits, while the one behind it may start as soon as
its programs have all said so: it meets them if before its wait it touches what one of them writes, or writes what one
touches. A program may do that, and meet others of its launch, after an atomic operation: such operations are how
programs agree. Who comes behind has not agreed to anything, and may meet that as well.
"""

from __future__ import annotations

import itertools
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder, interpreter_builder

from pagoda.kernels import cuda
from pagoda.kernels.cuda import overlap
from tests.kernels.cuda.fences import is_new

MODULES = [import_module(f"{cuda.__name__}.{module.name}") for module in pkgutil.iter_modules(cuda.__path__)]

Places = np.ndarray
"""Addresses of bytes."""


@dataclass(eq=False)
class Accesses:
    """Gathered piece by piece."""

    pieces: list[Places] = field(default_factory=list)

    def add(self, pointers: np.ndarray, mask: np.ndarray, num_bytes: int) -> None:
        first = pointers[np.broadcast_to(mask, pointers.shape)].astype(np.int64)
        self.pieces.extend(first + place for place in range(num_bytes))

    def places(self) -> Places:
        return np.unique(np.concatenate([piece.ravel() for piece in self.pieces])) if self.pieces else np.zeros(0, int)


@dataclass(eq=False)
class OfPrograms:
    """What each program of a launch touched."""

    pieces: list[tuple[int, Places]] = field(default_factory=list)

    def add(self, program: int, accesses: Accesses) -> None:
        if accesses.pieces:
            self.pieces.append((program, accesses.places()))

    def places(self) -> tuple[Places, Places]:
        """And whose they are."""
        if not self.pieces:
            return np.zeros(0, int), np.zeros(0, int)
        owners = [np.full(len(own), program) for program, own in self.pieces]
        return np.concatenate([own for _, own in self.pieces]), np.concatenate(owners)

    def meet(self, readers: OfPrograms) -> bool:
        """Of writers: whether one meets another of them, or a reader that is not itself."""
        written, owners = self.places()
        if not len(written):
            return False
        order = np.argsort(written, kind="stable")
        written, owners = written[order], owners[order]
        if (written[1:] == written[:-1]).any():  # a program has each place once
            return True
        read, by = readers.places()
        found = np.minimum(np.searchsorted(written, read), len(written) - 1)
        is_written = written[found] == read
        return bool((owners[found[is_written]] != by[is_written]).any())


@dataclass(eq=False)
class AtWork:
    """A kernel that may not have ended, and what it reads and writes: before its wait, and in all."""

    name: str
    is_early: bool = False
    reads: Accesses = field(default_factory=Accesses)
    writes: Accesses = field(default_factory=Accesses)
    early_reads: Accesses = field(default_factory=Accesses)
    early_writes: Accesses = field(default_factory=Accesses)
    readers: OfPrograms = field(default_factory=OfPrograms)
    writers: OfPrograms = field(default_factory=OfPrograms)
    num_waits: int = 0
    lets_go_before_waiting: bool = False


class Races(TorchFunctionMode):
    """Notes launches while it lasts; torch's own are such as wait for all before them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.early_kernels: set[str] = set()
        self._at_work: list[AtWork] = []
        self._now: AtWork | None = None
        self._num_programs = 0
        self._reads, self._writes = Accesses(), Accesses()  # of the program that runs
        self._has_waited = self._has_agreed = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        is_in_place = name.endswith("_") and not name.endswith("__")
        if isinstance(result, torch.Tensor) and (
            is_in_place or kwargs.get("out") is not None or is_new(result, (*args, *kwargs.values()))
        ):
            self._take(AtWork(f"torch.{name}"))
        return result

    # -- launches ----------------------------------------------------------------------------------------------------

    @contextmanager
    def launch(self, name: str, is_early: bool) -> Iterator[None]:
        self._now = AtWork(name, is_early)
        self._num_programs = 0
        yield
        self.program()
        now, self._now = self._now, None
        if now.writers.meet(now.readers):
            self.found.append(f"programs of {now.name} meet")
        if now.is_early:
            self._look_for_early_races(now)
        self._take(now)

    def program(self) -> None:
        """Another begins, or the last has ended."""
        assert self._now is not None
        self._now.readers.add(self._num_programs, self._reads)
        self._now.writers.add(self._num_programs, self._writes)
        self._reads, self._writes = Accesses(), Accesses()
        self._num_programs += 1
        self._has_waited = self._has_agreed = False

    def wait(self) -> None:
        assert self._now is not None
        self._now.num_waits += 1
        self._has_waited = True

    def let_go(self) -> None:
        assert self._now is not None
        self._now.lets_go_before_waiting |= not self._has_waited

    def _look_for_early_races(self, now: AtWork) -> None:
        self.early_kernels.add(now.name)
        if not now.num_waits:
            self.found.append(f"{now.name} never waits: who waits for it need not find what came before it done")
        early_reads, early_writes = now.early_reads.places(), now.early_writes.places()
        for other in self._at_work:
            reads, writes = other.reads.places(), other.writes.places()
            if np.isin(early_reads, writes).any():
                self.found.append(f"{now.name} reads before it waits what {other.name} writes")
            if np.isin(early_writes, writes).any() or np.isin(early_writes, reads).any():
                self.found.append(f"{now.name} writes before it waits what {other.name} uses")

    def _take(self, now: AtWork) -> None:
        """Whoever comes next may meet it, and with it those that it had not waited for when it let the next one go."""
        self._at_work = [*self._at_work, now] if now.is_early and now.lets_go_before_waiting else [now]

    # -- what a program does -----------------------------------------------------------------------------------------

    def read(self, pointers: Any, mask: Any) -> None:
        if self._now is not None:
            self._note(pointers, mask, self._now.reads, self._reads, self._now.early_reads)

    def write(self, pointers: Any, mask: Any) -> None:
        if self._now is not None:
            self._note(pointers, mask, self._now.writes, self._writes, self._now.early_writes)

    def agree(self) -> None:
        self._has_agreed = True

    def _note(self, pointers: Any, mask: Any, always: Accesses, own: Accesses, early: Accesses) -> None:
        num_bytes = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        always.add(pointers.data, mask.data, num_bytes)
        if not self._has_agreed:
            own.add(pointers.data, mask.data, num_bytes)
            if not self._has_waited:
                early.add(pointers.data, mask.data, num_bytes)


@pytest.fixture(autouse=True)
def races(order: None) -> Iterator[Races | None]:
    """On a GPU compute-sanitizer looks for some of them."""
    with nullcontext() if torch.cuda.is_available() else noting() as noted:
        yield noted
    assert noted is None or not noted.found, "; ".join(sorted(set(noted.found)))


@contextmanager
def noting() -> Iterator[Races]:
    """Kernels take the ways that they take on a GPU, as far as they start early there."""
    noted = Races()
    stand_ins = {
        "LAUNCHES_EARLY": True,
        "wait_for_earlier": lambda _early: noted.wait(),
        "launch_dependents": lambda _early: noted.let_go(),
        "fetch": lambda _pointers: None,  # into the second cache, which sees every write
    }
    with pytest.MonkeyPatch.context() as patch, noted:
        for module, (name, stand_in) in itertools.product(MODULES, stand_ins.items()):
            if hasattr(module, name):
                patch.setattr(module, name, stand_in)
        patch.setitem(overlap.EARLY_LAUNCH, "launch_pdl", True)
        _note_launches(noted, patch)
        _note_accesses(noted, patch)
        yield noted


def _note_launches(noted: Races, patch: pytest.MonkeyPatch) -> None:
    run, set_place = GridExecutor.__call__, interpreter_builder.set_grid_idx

    def run_noted(executor: Any, *args: Any, **named: Any) -> None:
        with noted.launch(executor.fn.__name__, bool(named.get("launch_pdl"))):
            run(executor, *args, **named)

    def new_program(*place: int) -> None:
        noted.program()
        set_place(*place)

    patch.setattr(GridExecutor, "__call__", run_noted)
    patch.setattr(interpreter_builder, "set_grid_idx", new_program)


def _note_accesses(noted: Races, patch: pytest.MonkeyPatch) -> None:
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def noted_load(builder: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        noted.read(pointers, mask)
        return load(builder, pointers, mask, *rest, **named)

    def noted_store(builder: Any, pointers: Any, values: Any, mask: Any, *rest: Any) -> Any:
        noted.write(pointers, mask)
        return store(builder, pointers, values, mask, *rest)

    patch.setattr(InterpreterBuilder, "create_masked_load", noted_load)
    patch.setattr(InterpreterBuilder, "create_masked_store", noted_store)
    for name in ("create_atomic_rmw", "create_atomic_cas"):
        patch.setattr(InterpreterBuilder, name, _agreeing(noted, getattr(InterpreterBuilder, name)))


def _agreeing(noted: Races, operation: Callable[..., Any]) -> Callable[..., Any]:
    def agree(*args: Any) -> Any:
        noted.agree()
        return operation(*args)

    return agree
