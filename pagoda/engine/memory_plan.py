"""How much of everything an engine takes: its settings and its model, held against the memory that is free."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pagoda.core.cache import KVCacheType
from pagoda.core.config import EngineConfig
from pagoda.core.errors import CapacityError, InvalidRequest
from pagoda.executor.memory import (
    CacheDemand,
    FixedCosts,
    MemoryPlan,
    available_bytes,
    longest_that_fits,
    plan_for_pages,
    plan_memory,
)
from pagoda.models import Model

if TYPE_CHECKING:  # they bring torch
    from pagoda.executor.cuda.build import CudaBuilder
    from pagoda.executor.cuda.parts import DeviceSizes

# On CUDA, where nobody says how many rows: the most of these that leave each this many tokens of cache.
ROW_CHOICES = (1024, 512, 256, 128, 64, 32, 16, 8, 4, 2, 1)
TOKENS_A_ROW = 512


def plan_for(
    config: EngineConfig,
    model: Model,
    costs: FixedCosts,
    kv_cache_type: KVCacheType,
    budget: int | None = None,
    lines_of_rows: Callable[[int], dict[str, int]] | None = None,
) -> MemoryPlan:
    """The memory that the engine will take under these settings; a device gives its own budget and rows."""
    demand = CacheDemand(
        groups=model.cache_groups(),
        page_size=config.block_size,
        max_num_seqs=config.num_rows,
        max_num_batched_tokens=config.max_num_batched_tokens,
        kv_cache_type=kv_cache_type,
        lines_of_rows=lines_of_rows,
    )
    context = model.config.max_positions
    if config.max_model_len is not None and config.max_model_len > context:
        raise InvalidRequest("max_model_len", f"{config.max_model_len} is more than the model's context of {context}")
    if budget is None:
        budget = int(available_bytes() * config.gpu_memory_utilization)
    if config.num_pages is not None:
        length = config.max_model_len or min(context, config.num_pages * config.block_size)
        return plan_for_pages(demand, costs, budget, length, config.num_pages)
    length = config.max_model_len or longest_that_fits(demand, costs, budget, context)
    return plan_memory(demand, costs, budget, length)


def device_sizes(config: EngineConfig) -> DeviceSizes:
    from pagoda.executor.cuda.parts import DeviceSizes

    return DeviceSizes(config.num_rows, config.max_num_batched_tokens, config.block_size)


def plan_on_device(
    config: EngineConfig, model: Model, builder: CudaBuilder, free_bytes: int
) -> tuple[EngineConfig, MemoryPlan]:
    """The plan for a device on which so much is free, and the settings with `max_num_seqs` decided."""
    if config.max_num_seqs is not None:
        return config, _plan_rows(config, model, builder, free_bytes)
    enough = min(TOKENS_A_ROW, config.max_model_len or model.config.max_positions)
    for num_rows in (count for count in ROW_CHOICES if count <= config.max_num_batched_tokens):
        decided = msgspec.structs.replace(config, max_num_seqs=num_rows)
        try:
            memory = _plan_rows(decided, model, builder, free_bytes)
        except CapacityError:
            if num_rows == ROW_CHOICES[-1]:
                raise
            continue
        if max(memory.num_pages) * config.block_size >= num_rows * enough:
            break
    return decided, memory


def _plan_rows(config: EngineConfig, model: Model, builder: CudaBuilder, free_bytes: int) -> MemoryPlan:
    sizes = device_sizes(config)
    budget = int(free_bytes * config.gpu_memory_utilization)
    lines_of_rows = partial(builder.lines_of_rows, sizes)
    return plan_for(config, model, builder.fixed_costs(sizes), builder.kv_cache_type, budget, lines_of_rows)
