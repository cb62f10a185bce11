"""The memory ledger: what the engine will take, worked out before it takes anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from pagoda.core.cache import CacheGroup, KVCacheType
from pagoda.core.errors import CapacityError

FLOAT32_BYTES = 4
MEBIBYTE = 1 << 20


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How many pages each cache group gets, and the bytes behind every item."""

    num_pages: tuple[int, ...]
    max_model_len: int
    weight_bytes: int
    page_bytes: tuple[int, ...]
    """Bytes of one page, by group."""
    budget_bytes: int

    @property
    def cache_bytes(self) -> int:
        return sum(count * size for count, size in zip(self.num_pages, self.page_bytes, strict=True))

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.cache_bytes


class CacheDemand(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows of an engine could ask of the cache."""

    groups: tuple[CacheGroup, ...]
    page_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_type: KVCacheType = "f32"

    def page_bytes(self) -> tuple[int, ...]:
        return tuple(group.bytes_per_token(self.kv_cache_type) * self.page_size for group in self.groups)

    def pages_for_one(self, num_tokens: int) -> tuple[int, ...]:
        """By group: the most pages that one sequence of this length holds at once."""
        step = self.max_num_batched_tokens
        return tuple(group.most_pages(num_tokens, step, self.page_size) for group in self.groups)

    def pages_for_all(self, num_tokens: int) -> tuple[int, ...]:
        """By group: enough for every row to have a sequence of this length."""
        return tuple(self.max_num_seqs * count for count in self.pages_for_one(num_tokens))


def available_bytes() -> int:
    """Memory that can be had now without swapping. What the system only caches files in counts as free."""
    with suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def plan_memory(demand: CacheDemand, weight_bytes: int, budget_bytes: int, max_model_len: int) -> MemoryPlan:
    """Share the budget out: at least one sequence of the full length must fit; more than all rows need is not taken."""
    page_bytes = demand.page_bytes()
    one = demand.pages_for_one(max_model_len)
    all_rows = demand.pages_for_all(max_model_len)
    for_cache = budget_bytes - weight_bytes
    least = _bytes(one, page_bytes)
    if least > for_cache:
        raise CapacityError(
            f"one sequence of {max_model_len} tokens needs {least // MEBIBYTE} MiB of cache beside "
            f"{weight_bytes // MEBIBYTE} MiB of weights, and {budget_bytes // MEBIBYTE} MiB may be used; lower "
            f"max_model_len or raise gpu_memory_utilization"
        )
    share = min(1.0, (for_cache - least) / max(1, _bytes(all_rows, page_bytes) - least))
    num_pages = tuple(low + int((high - low) * share) for low, high in zip(one, all_rows, strict=True))
    return MemoryPlan(
        num_pages=num_pages,
        max_model_len=max_model_len,
        weight_bytes=weight_bytes,
        page_bytes=page_bytes,
        budget_bytes=budget_bytes,
    )


def longest_that_fits(demand: CacheDemand, weight_bytes: int, budget_bytes: int, wanted: int) -> int:
    """The longest sequence, up to `wanted`, for which the budget has room; at least one page."""
    low, high = demand.page_size, max(wanted, demand.page_size)
    page_bytes = demand.page_bytes()
    while low < high:
        middle = (low + high + 1) // 2
        fits = _bytes(demand.pages_for_one(middle), page_bytes) <= budget_bytes - weight_bytes
        low, high = (middle, high) if fits else (low, middle - 1)
    return min(low, wanted)


def with_num_pages(plan: MemoryPlan, demand: CacheDemand, num_pages: int) -> MemoryPlan:
    """The plan for a number of pages that the user asked for; window groups take no more than their rows can hold."""
    all_rows = demand.pages_for_all(plan.max_model_len)
    counts = tuple(
        min(num_pages, most) if group.window else num_pages for group, most in zip(demand.groups, all_rows, strict=True)
    )
    for needed, count in zip(demand.pages_for_one(plan.max_model_len), counts, strict=True):
        if needed > count:
            raise CapacityError(
                f"num_pages={num_pages} cannot hold one sequence of max_model_len={plan.max_model_len} tokens, which "
                f"needs {needed} pages of {demand.page_size}; raise num_pages or lower max_model_len"
            )
    return msgspec.structs.replace(plan, num_pages=counts)


def _bytes(num_pages: Sequence[int], page_bytes: Sequence[int]) -> int:
    return sum(count * size for count, size in zip(num_pages, page_bytes, strict=True))
