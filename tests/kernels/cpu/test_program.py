"""Recorded programs read as the library reads them: no live value is overwritten, no thread runs ahead of another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.kernels.base import KVPages, RaggedBatch
from pagoda.kernels.cpu import CpuKernels
from pagoda.kernels.cpu import program as program_module
from pagoda.kernels.cpu.program import Program
from pagoda.kernels.cpu.recorder import Operation
from pagoda.kernels.reference import ReferenceOperators
from pagoda.kernels.symbol import Symbol
from pagoda.models import Model
from tests.kernels.cpu.families import FAMILIES, NativeRunner, make_family
from tests.kernels.cpu.programs import assert_same_bits, compile_program, flat_batch, normal, over, run_twin
from tests.kernels.reference.dense_weight import DenseWeight
from tests.models.tiny import random_ids

# The operands of each operation by their place among the arguments, as native/program.h lists them.
READS = {
    Operation.EMBED: (),
    Operation.LINEAR: (0,),
    Operation.RMS_NORM: (0,),
    Operation.ADD: (0, 1),
    Operation.SCALE: (0,),
    Operation.GATED_SILU: (0, 1),
    Operation.GATED_GELU: (0, 1),
    Operation.ROPE_TABLE: (),
    Operation.ROPE: (0,),
    Operation.WRITE: (0, 1),
    Operation.ATTENTION: (0,),
    Operation.TAKE_ROWS: (0,),
    Operation.SOFT_CAP: (0,),
    Operation.QUANTIZE: (0,),
    Operation.LINEAR_INTEGER: (0,),
}
WRITES = {
    Operation.EMBED: 1,
    Operation.LINEAR: 2,
    Operation.RMS_NORM: 2,
    Operation.ADD: 2,
    Operation.SCALE: 1,
    Operation.GATED_SILU: 2,
    Operation.GATED_GELU: 2,
    Operation.ROPE: 1,
    Operation.ATTENTION: 1,
    Operation.TAKE_ROWS: 1,
    Operation.SOFT_CAP: 1,
    Operation.QUANTIZE: 1,
    Operation.LINEAR_INTEGER: 2,
}
# By the rows of the step in native/instructions.inc, unless they make logits.
BY_ROWS = {
    *(Operation.EMBED, Operation.RMS_NORM, Operation.ADD, Operation.SCALE, Operation.GATED_SILU, Operation.GATED_GELU),
    *(Operation.ROPE_TABLE, Operation.ROPE, Operation.SOFT_CAP, Operation.QUANTIZE),
    Operation.WRITE,
}


@dataclass(frozen=True)
class Access:
    """What one native instruction touches. A buffer comes with the value that the model meant to be there."""

    reads: list[tuple[object, int]]
    writes: list[tuple[object, int]]
    after_barrier: bool
    run: int  # the run of instructions, done row by row, that it belongs to; 0: none


def accesses(program: Program, step: int = program_module.MANY_TOKENS) -> Iterator[Access]:
    run = num_left = 0
    for record, recorded in zip(program._instructions, program._recorder.instructions, strict=True):
        operation = Operation(record.operation)
        arguments = list(record.arguments)

        def buffer(index: int, arguments=arguments, recorded=recorded) -> tuple[object, int]:
            symbol = recorded.arguments[index]
            assert isinstance(symbol, Symbol)
            place = arguments[index]
            return ("buffer", program._left.get(place, place)), symbol.value

        reads = [buffer(index) for index in READS[operation]]
        writes = [buffer(WRITES[operation])] if operation in WRITES else []
        if operation is Operation.ROPE:
            reads.append((("rope", arguments[3]), 0))
        if operation is Operation.ROPE_TABLE:
            writes.append((("rope", arguments[0]), 0))
        if operation is Operation.ATTENTION:
            reads.append((("pages", arguments[2]), 0))
        if operation is Operation.WRITE:
            writes.append((("pages", arguments[2]), 0))
        of_logits = operation in WRITES and bool(program._buffers[arguments[WRITES[operation]]].is_rows)
        if step == program_module.MANY_TOKENS and record.run:
            assert num_left == 0, "a run begins within another"
            run, num_left = run + 1, record.run
        in_run = num_left > 0
        num_left -= in_run
        assert not in_run or (operation in BY_ROWS and not of_logits), f"{operation.name} is not done row by row"
        yield Access(reads, writes, bool(record.barriers & step), run if in_run else 0)


def check_values(program: Program) -> None:
    """Every buffer holds what the model meant whenever it is read."""
    holds: dict[object, int] = {}
    for access in accesses(program):
        for resource, value in access.reads:
            assert resource[0] == "pages" or holds.get(resource) == value, f"{resource} was overwritten"
        written = {resource for resource, _ in access.writes}
        assert not written & {resource for resource, _ in access.reads}, "an instruction overwrites what it reads"
        holds |= dict(access.writes)
    assert holds["buffer", program._logits_place] == program._recorder.values[-1].value


def check_barriers(program: Program) -> None:
    """Between two barriers no resource is written by one thread and touched by another."""
    for step in (program_module.MANY_TOKENS, program_module.SINGLE_TOKEN):
        since: dict[object, list[tuple[bool, int]]] = {}
        for access in accesses(program, step):
            if access.after_barrier:
                since.clear()
            touched = [(resource, False) for resource, _ in access.reads]
            touched += [(resource, True) for resource, _ in access.writes]
            if step == program_module.SINGLE_TOKEN:
                touched = [(resource, writes) for resource, writes in touched if not is_own(program, resource)]
            for resource, writes in touched:
                for before_writes, run in since.get(resource, []):
                    same_thread = access.run and run == access.run
                    assert same_thread or not (writes or before_writes), f"{resource}: threads do not wait"
            for resource, writes in touched:
                since.setdefault(resource, []).append((writes, access.run))


def is_own(program: Program, resource: tuple[str, int]) -> bool:
    kind, number = resource
    records = {"buffer": program._buffers, "rope": program._ropes}
    return kind in records and records[kind][number].own_stride > 0


def check_buffers(program: Program) -> None:
    """A buffer is as wide as every value that is kept in it, and of the same kind of rows."""
    for symbol in program._recorder.values:
        record = program._buffers[program._places[symbol.value]]
        assert (record.width, bool(record.is_rows)) == (symbol.width, symbol.is_rows)
        assert record.stride >= symbol.width and record.stride % 16 == 0


def check_program(program: Program) -> None:
    check_values(program)
    check_barriers(program)
    check_buffers(program)


@cache
def family_model(family: str) -> Model:
    return make_family(family, Path(mkdtemp()))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_program_of_every_family_is_sound(family: str):
    program = NativeRunner(family_model(family), CpuKernels(1)).program
    check_program(program)
    barriers = [access.after_barrier for access in accesses(program)]
    assert not barriers[0] and sum(barriers) < len(barriers)
    assert len(program._workspace.buffers) < len(program._recorder.values) / 3, "buffers are shared"


@pytest.mark.parametrize("family", FAMILIES)
def test_sharing_buffers_and_leaving_barriers_out_change_nothing(family: str, monkeypatch: pytest.MonkeyPatch):
    model, steps = family_model(family), [{"a": random_ids(30, 1), "b": random_ids(3, 2)}, {"b": [5], "a": [7]}]
    runner = NativeRunner(model, CpuKernels(3))
    shared = [runner.step(step) for step in steps]

    def own_place_each(instructions, _logits, _own, _kept):
        written = [
            symbol.value for recorded in instructions for symbol in recorded.writes if isinstance(symbol, Symbol)
        ]
        return {value: place for place, value in enumerate(written)}

    monkeypatch.setattr(program_module, "assign_places", own_place_each)
    monkeypatch.setattr(program_module, "find_barriers", lambda instructions, *_: [True] * len(instructions))
    runner = NativeRunner(model, CpuKernels(3))
    assert len(runner.program._buffers) == len(runner.program._recorder.values)
    for expected, actual in zip(shared, [runner.step(step) for step in steps], strict=True):
        for row in expected:
            assert_same_bits(actual[row], expected[row])


@given(st.lists(st.tuples(st.sampled_from("asgcln"), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=25))
def test_any_sequence_of_operators_is_sound_and_computes_what_its_twin_does(choices):
    wide, narrow = DenseWeight(normal(40, 24) / 8), DenseWeight(normal(24, 40, seed=1) / 8)
    x = normal(5, 24, seed=2)

    def forward(table, x):
        values = [(x, 24)]

        def some(number: int, width: int):
            fitting = [value for value, own in values if own == width]
            return fitting[-1 - number % len(fitting)]

        for kind, first, second in choices:
            value, width = values[first % len(values)]
            if kind == "a":
                values.append((table.add(value, some(second, width)), width))
            elif kind == "g":
                values.append((table.gated_silu(value, some(second, width)), width))
            elif kind == "s":
                values.append((table.scale(value, 0.5), width))
            elif kind == "c":
                values.append((table.soft_cap(value, 4.0), width))
            else:
                values.append((table.linear(value, wide if width == 24 else narrow), 64 - width))
        return values[-1][0]

    whole = over(forward, x)
    program = compile_program(CpuKernels(3), whole, [CpuKernels(1).new_pages(1, 16, 1, 16)], 5)
    check_program(program)
    expected = run_twin(whole, flat_batch(5))
    actual = program.run(flat_batch(5), np.arange(5, dtype=np.int32))
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * (1 + np.abs(expected).max()))


def test_the_checks_notice_a_lost_value_and_a_lost_barrier(monkeypatch: pytest.MonkeyPatch):
    """Checks that cannot fail prove nothing."""
    model = family_model("llama")
    monkeypatch.setattr(program_module, "find_barriers", lambda instructions, *_: [False] * len(instructions))
    with pytest.raises(AssertionError, match="threads do not wait"):
        check_barriers(NativeRunner(model, CpuKernels(1)).program)
    sound = program_module.assign_places

    adds = [
        r for r in NativeRunner(model, CpuKernels(1)).program._recorder.instructions if r.operation == Operation.ADD
    ]
    taken = adds[0].writes[0].value

    def overwrite(instructions, logits, own, _kept):
        places = sound(instructions, logits, own)
        norm = next(r for r in instructions if r.operation is Operation.RMS_NORM and r.reads[0].value == taken)
        return {**places, norm.writes[0].value: places[taken]}

    monkeypatch.setattr(program_module, "assign_places", overwrite)
    with pytest.raises(AssertionError, match="overwri"):
        check_values(NativeRunner(model, CpuKernels(1)).program)


def test_logits_of_one_step_outlive_the_next():
    runner = NativeRunner(family_model("qwen3"), CpuKernels(2))
    first = runner.step({"a": [1, 2, 3]})["a"]
    kept = first.copy()
    runner.step({"a": [4, 5, 6]})
    assert_same_bits(first, kept)


@pytest.mark.parametrize("num_tokens", [1, 2, 9])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_value_that_is_kept_outlives_the_run(num_threads: int, num_tokens: int):
    weight, scale = DenseWeight(normal(32, 32) / 6), DenseWeight(np.ones(32, np.float32))
    kept: dict[str, Any] = {}

    def forward(table: Any, batch: RaggedBatch, _layers: list[KVPages]) -> Any:
        x = table.embed(table_of_inputs, batch.token_ids)
        kept["x"] = table.rms_norm(table.linear(x, weight), scale, 1e-5)
        x = kept["x"]
        for _ in range(4):  # would take its place if it were free
            x = table.add(table.linear(x, weight), x)
        return x

    table_of_inputs = DenseWeight(normal(12, 32, seed=3))
    kernels = CpuKernels(num_threads)
    layers = [kernels.new_pages(1, 16, 1, 16)]
    batch = flat_batch(num_tokens)
    recorder = kernels.recorder(layers)
    output = recorder.take_rows(forward(recorder, recorder.batch(), layers), None)
    program = kernels.compile(recorder, output, 12, kept=kept["x"])
    for rows in ([], [num_tokens - 1]):
        program.run(batch, np.array(rows, np.int32))
        found = program.kept(num_tokens).copy()
        forward(ReferenceOperators(), batch, layers)
        np.testing.assert_allclose(found, kept["x"], atol=1e-5)


def test_a_step_may_bring_arrays_of_any_integer_type_and_order():
    runner = NativeRunner(family_model("qwen3"), CpuKernels(2))
    again = NativeRunner(family_model("qwen3"), CpuKernels(2))
    expected = runner.step({"a": [1, 2, 3], "b": [4]})
    for row, ids in {"a": [1, 2, 3], "b": [4]}.items():
        again._grow(row, len(ids))
    batch = again._batch({"a": [1, 2, 3], "b": [4]})
    strange = RaggedBatch(
        batch.token_ids.astype(np.int64),
        np.repeat(batch.positions, 2)[::2],
        batch.row_starts.astype(np.int64),
        batch.context_lens.astype(np.uint8),
        tuple(np.asfortranarray(table.astype(np.int64)) for table in batch.page_tables),
    )
    actual = again.forward.logits(strange, np.arange(4))
    assert_same_bits(actual, np.concatenate([expected["a"], expected["b"]]))
