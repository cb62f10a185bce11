"""What the builder says beforehand is what its parts then hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pagoda.core.config import EngineConfig
from pagoda.core.errors import CapacityError
from pagoda.engine.memory_plan import device_sizes, plan_on_device
from pagoda.executor.cuda.build import LIBRARY_BYTES, CudaBuilder
from pagoda.executor.cuda.parts import DeviceSizes
from pagoda.kernels.cuda.counting import NOWHERE
from tests.kernels.cpu.families import FAMILIES, make_family

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MEBIBYTE, GIBIBYTE = 1 << 20, 1 << 30
SIZES = DeviceSizes(4, 24, 16)


def config(**settings: Any) -> EngineConfig:
    small = {"max_num_seqs": 4, "max_num_batched_tokens": 24, "gpu_memory_utilization": 0.5}
    return EngineConfig(model="tiny", device="cuda", **(small | settings))


def tensors_under(*owners: object) -> list[torch.Tensor]:
    """Every tensor that can be reached, each storage once: an oracle that knows nothing of lines."""
    seen: dict[int, object] = {}
    found: dict[int, torch.Tensor] = {}
    waiting = list(owners)
    while waiting:
        owner = waiting.pop()
        if id(owner) in seen:
            continue
        seen[id(owner)] = owner
        if isinstance(owner, torch.Tensor):
            found.setdefault(owner.untyped_storage().data_ptr(), owner)
        else:
            waiting += children_of(owner)
    return [tensor for tensor in found.values() if tensor.numel()]


def children_of(owner: object) -> Iterator[object]:
    if isinstance(owner, dict):
        yield from owner.values()
    elif isinstance(owner, list | tuple | set):
        yield from owner
    elif hasattr(owner, "func") and hasattr(owner, "args"):  # a bound launch
        yield from (owner.func, *owner.args)
    elif type(owner).__module__.startswith("pagoda.") and not isinstance(owner, type):
        names = [*getattr(owner, "__dict__", {}), *getattr(type(owner), "__slots__", ())]
        yield from (getattr(owner, name) for name in names if hasattr(owner, name))


@pytest.mark.parametrize(
    ("quantization", "deterministic", "kv_cache_type"),
    [
        ("none", False, "auto"),
        ("none", True, "fp8"),
        ("fp8", False, "fp8"),
        ("fp8", True, "auto"),
        ("int8", False, "auto"),
        ("int4", False, "fp8"),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_line_is_what_its_owner_took(
    family: str, quantization: str, deterministic: bool, kv_cache_type: str, tmp_path: Path
) -> None:
    model = make_family(family, tmp_path)
    builder = CudaBuilder(model, "float32", quantization, DEVICE, deterministic, kv_cache_type)
    settings = config(max_model_len=100, num_pages=40)
    _, memory = plan_on_device(settings, model, builder, 8 * GIBIBYTE)
    builder.load(memory, device_sizes(settings))
    executor = builder.make_executor(())
    taken = executor.allocated_bytes()
    assert taken.keys() == memory.lines.keys()
    assert taken | {"libraries": 0} == memory.lines | {"libraries": 0}
    assert executor.num_host_bytes == builder.host_bytes(device_sizes(settings), 100)
    executor.close()


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("family", ["qwen2", "gemma3"])
def test_the_lines_leave_nothing_out(family: str, deterministic: bool, tmp_path: Path) -> None:
    """By looking for tensors everywhere below the executor. Those in main memory are pinned, all others count."""
    builder = CudaBuilder(make_family(family, tmp_path), "float32", "none", DEVICE, deterministic)
    parts = builder._make_parts(torch.device(DEVICE), SIZES, 100, [40, 40][: len(builder._groups)])
    whole = sum(tensor.untyped_storage().nbytes() for tensor in tensors_under(parts))
    assert whole == sum(parts.lines().values()) + parts.num_host_bytes


def test_nothing_is_taken_for_a_plan(tmp_path: Path) -> None:
    builder = CudaBuilder(make_family("llama", tmp_path), device="meta")
    parts = builder._make_parts(NOWHERE, SIZES, 100, [40])
    assert {tensor.device for tensor in tensors_under(parts)} == {NOWHERE}


def test_the_length_of_a_row_is_what_fits(tmp_path: Path) -> None:
    model = make_family("llama", tmp_path)
    builder = CudaBuilder(model, "float32", device="meta")
    _, whole = plan_on_device(config(), model, builder, 8 * GIBIBYTE)
    assert whole.max_model_len == model.config.max_positions
    fixed = builder.fixed_costs(device_sizes(config())).total
    assert fixed > LIBRARY_BYTES
    _, tight = plan_on_device(config(), model, builder, 2 * (fixed + (whole.total_bytes - fixed) // 2))
    assert 16 <= tight.max_model_len < whole.max_model_len and tight.total_bytes <= tight.budget_bytes
    with pytest.raises(CapacityError, match="raise gpu_memory_utilization"):
        plan_on_device(config(), model, builder, fixed)


def test_as_many_rows_as_leave_each_enough_of_the_cache(tmp_path: Path) -> None:
    model = make_family("llama", tmp_path)
    builder = CudaBuilder(model, "float32", device="meta")
    asked = config(max_num_seqs=None, max_num_batched_tokens=8192)
    fixed = builder.fixed_costs(DeviceSizes(1024, 8192, 16)).total
    before = 1025
    for free in (8 * GIBIBYTE, fixed * 2 + 60 * MEBIBYTE, fixed * 2 + 6 * MEBIBYTE):
        decided, memory = plan_on_device(asked, model, builder, free)
        assert 1 <= decided.num_rows < before
        before = decided.num_rows
        assert sum(memory.num_pages) * 16 >= decided.num_rows * min(512, model.config.max_positions)
    assert plan_on_device(config(max_num_seqs=7), model, builder, 8 * GIBIBYTE)[0].num_rows == 7
    few = config(max_num_seqs=None, max_num_batched_tokens=100)
    assert plan_on_device(few, model, builder, 8 * GIBIBYTE)[0].num_rows == 64
