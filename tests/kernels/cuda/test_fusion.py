"""A recorded forward pass after its calls were joined: which launches are left, and no buffer is written too early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from pagoda.executor.cuda.recording import record
from pagoda.kernels.cuda.fusion import AddNorm, Project, Quantize, fuse
from pagoda.kernels.cuda.places import Places
from pagoda.kernels.cuda.recorder import Call
from pagoda.kernels.cuda.row_calls import RowProject, join_for_row
from pagoda.kernels.symbol import Symbol
from tests.kernels.cpu.families import FAMILIES, make_family


def names(calls: Sequence[Call]) -> list[str]:
    return [type(call).__name__ for call in calls]


def test_a_layer_is_nine_launches_and_six_for_a_single_row(tmp_path: Path) -> None:
    recorder, _ = record(make_family("qwen3", tmp_path))
    calls = fuse(recorder.calls, recorder.num_values)
    layer = ["Project", "RopeWrite", "Attend", "Project", "AddNorm", "Project", "Gate", "Project", "AddNorm"]
    last = [*layer[:3], "TakeRows", "Project", "TakeRows", *layer[4:]]
    assert names(calls) == ["Embed", "PlainNorm", *2 * layer, *last, "Project"]
    for_row = join_for_row(calls)
    assert for_row is not None
    layer = ["RowProject", "RopeWrite", "Attend", "RowProject", "RowProject", "RowProject"]
    assert names(for_row) == ["Embed", *3 * layer, "RowProject"]
    products = [call for call in for_row if isinstance(call, RowProject)]
    assert [call.norm is not None for call in products] == [*3 * [True, False, True, False], True]
    assert [call.has_residual for call in products] == [*3 * [False, True, False, True], False]
    assert [call.is_gated for call in products] == [*3 * [False, False, True, False], False]


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_what_does_not_fit_a_single_row_takes_the_common_way(family: str, tmp_path: Path) -> None:
    """Biases in the MLP; a gate of GELU and norms behind the blocks."""
    recorder, _ = record(make_family(family, tmp_path))
    assert join_for_row(fuse(recorder.calls, recorder.num_values)) is None


def test_whoever_makes_the_input_of_a_product_rounds_it(tmp_path: Path) -> None:
    recorder, logits = record(make_family("qwen3", tmp_path))
    calls = fuse(recorder.calls, recorder.num_values, in_bytes=True)
    products = [call for call in calls if isinstance(call, Project)]
    assert [call.takes_bytes for call in products] == [*12 * [True], False], "logits are not rounded"
    assert sum(isinstance(call, Quantize) for call in calls) == 3, "only what attention gives has no kernel to round it"
    last = [call for call in calls if isinstance(call, AddNorm)][-1]
    assert not last.makes_bytes, "the last norm is read by logits"
    places = Places(calls, logits, torch.device("cpu"), torch.float32, 4, 2)
    for call in products[:12]:
        assert places.view(call.reads[0], 4).dtype == torch.float8_e4m3fn


@pytest.mark.parametrize("in_bytes", [False, True])
@pytest.mark.parametrize("for_row", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_no_buffer_is_written_while_its_value_is_wanted(
    family: str, for_row: bool, in_bytes: bool, tmp_path: Path
) -> None:
    recorder, logits = record(make_family(family, tmp_path))
    calls: Sequence[Call] | None = fuse(recorder.calls, recorder.num_values, in_bytes and not for_row)
    calls = join_for_row(calls) if for_row and calls is not None else calls
    if calls is None:
        return
    places = Places(calls, logits, torch.device("cpu"), torch.float32, 4, 2)
    holder: dict[int, int] = {}  # by address of a column: the value that was written there last

    def addresses(symbol: Symbol) -> range:
        row = places.view(symbol, 1)[0]
        return range(row.data_ptr(), row.data_ptr() + row.numel() * row.element_size(), row.element_size())

    for call in calls:
        for symbol in call.reads:
            expected = {symbol.value}
            assert {holder[address] for address in addresses(symbol)} == expected, f"{type(call).__name__} reads"
        made = [call.total] if isinstance(call, AddNorm) else []
        is_gated = isinstance(call, RowProject) and (call.is_gated or call.has_residual)
        if isinstance(call, Project) and not is_gated:
            made += [product.out for product in call.products if product.out is not None]
        elif call.out is not None:
            made.append(call.out)
        for symbol in made:
            holder.update(dict.fromkeys(addresses(symbol), symbol.value))
    assert Counter(holder[address] for address in addresses(logits)) == {logits.value: logits.width}
