"""The memory ledger: what the engine will take, worked out before it takes anything."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from pagoda.core.cache import CacheGroup, KVCacheType
from pagoda.core.errors import CapacityError
from pagoda.decoding import sampling_state_bytes
from pagoda.executor.cgroup import cgroup_available_bytes
from pagoda.executor.rows import worker_rows_bytes

FLOAT32_BYTES = 4
MEBIBYTE = 1 << 20


class FixedCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine takes whatever the number of pages and the length of a row."""

    weights: int
    workspace: int = 0
    """What a step computes in."""
    logits: int = 0
    others: dict[str, int] = {}
    """By line of the ledger: what a device needs beside that."""

    @property
    def lines(self) -> dict[str, int]:
        return {"weights": self.weights, "workspace": self.workspace, "logits": self.logits, **self.others}

    @property
    def total(self) -> int:
        return sum(self.lines.values())


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How many pages each cache group gets, and the bytes behind every item."""

    num_pages: tuple[int, ...]
    max_model_len: int
    costs: FixedCosts
    row_lines: dict[str, int]
    """By line: what is kept of the rows."""
    page_bytes: tuple[int, ...]
    """Bytes of one page, by group."""
    budget_bytes: int

    @property
    def weight_bytes(self) -> int:
        return self.costs.weights

    @property
    def cache_bytes(self) -> int:
        return _bytes(self.num_pages, self.page_bytes)

    @property
    def total_bytes(self) -> int:
        return sum(self.lines.values())

    @property
    def lines(self) -> dict[str, int]:
        """The ledger: what each owner will take. `Executor.allocated_bytes` has the same lines."""
        return {"weights": self.costs.weights, "pages": self.cache_bytes} | self.costs.lines | self.row_lines


class CacheDemand(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows of an engine could ask of the cache."""

    groups: tuple[CacheGroup, ...]
    page_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_type: KVCacheType = "f32"
    lines_of_rows: Callable[[int], dict[str, int]] | None = None
    """By line: what a device keeps of rows of so many tokens; None: they lie in main memory, as a worker's do."""

    def page_bytes(self) -> tuple[int, ...]:
        return tuple(group.bytes_per_token(self.kv_cache_type) * self.page_size for group in self.groups)

    def pages_for_one(self, num_tokens: int) -> tuple[int, ...]:
        """By group: the most pages that one sequence of this length holds at once."""
        step = self.max_num_batched_tokens
        return tuple(group.most_pages(num_tokens, step, self.page_size) for group in self.groups)

    def pages_for_all(self, num_tokens: int) -> tuple[int, ...]:
        """By group: enough for every row to have a sequence of this length."""
        return tuple(self.max_num_seqs * count for count in self.pages_for_one(num_tokens))

    def row_lines(self, max_model_len: int) -> dict[str, int]:
        """By line: what is kept of the rows."""
        if self.lines_of_rows is not None:
            return self.lines_of_rows(max_model_len)
        rows = worker_rows_bytes(self.max_num_seqs, max_model_len, self.page_size, len(self.groups))
        return {"rows": rows + sampling_state_bytes(self.max_num_seqs)}

    def rows_bytes(self, max_model_len: int) -> int:
        return sum(self.row_lines(max_model_len).values())

    def bytes_for_one(self, costs: FixedCosts, num_tokens: int) -> int:
        """The least with which a sequence of this length can run."""
        return costs.total + self.rows_bytes(num_tokens) + _bytes(self.pages_for_one(num_tokens), self.page_bytes())


def available_bytes() -> int:
    """Memory that can be had now without swapping, within the limits of a container. What the system only caches files
    in counts as free."""
    limit = cgroup_available_bytes()
    free = _free_bytes()
    return free if limit is None else min(free, limit)


def _free_bytes() -> int:
    with suppress(OSError, ValueError), open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def plan_memory(demand: CacheDemand, costs: FixedCosts, budget_bytes: int, max_model_len: int) -> MemoryPlan:
    """Share the budget out: at least one sequence of the full length must fit; more than all rows need is not taken."""
    page_bytes = demand.page_bytes()
    one = demand.pages_for_one(max_model_len)
    all_rows = demand.pages_for_all(max_model_len)
    row_lines = demand.row_lines(max_model_len)
    for_cache = budget_bytes - costs.total - sum(row_lines.values())
    least = _bytes(one, page_bytes)
    if least > for_cache:
        raise CapacityError(_too_little(demand, costs, budget_bytes, max_model_len))
    share = min(1.0, (for_cache - least) / max(1, _bytes(all_rows, page_bytes) - least))
    num_pages = tuple(low + int((high - low) * share) for low, high in zip(one, all_rows, strict=True))
    return MemoryPlan(
        num_pages=num_pages,
        max_model_len=max_model_len,
        costs=costs,
        row_lines=row_lines,
        page_bytes=page_bytes,
        budget_bytes=budget_bytes,
    )


def _too_little(demand: CacheDemand, costs: FixedCosts, budget_bytes: int, max_model_len: int) -> str:
    """What is missing, and what would help."""
    pages = _bytes(demand.pages_for_one(max_model_len), demand.page_bytes())
    around = costs.total - costs.weights + demand.rows_bytes(max_model_len)
    text = (
        f"one sequence of {max_model_len} tokens needs {_mebibytes(pages)} MiB of cache beside "
        f"{_mebibytes(costs.weights)} MiB of weights and {_mebibytes(around)} MiB to work in, and "
        f"{_mebibytes(budget_bytes)} MiB may be used"
    )
    if costs.total + demand.rows_bytes(1) > budget_bytes:
        return f"{text}; free memory, raise gpu_memory_utilization or take a smaller model"
    is_smallest = demand.kv_cache_type == "int8" or demand.lines_of_rows is not None
    smaller = "" if is_smallest else ", or set kv_cache_type to int8"
    fits = longest_that_fits(demand, costs, budget_bytes, max_model_len)
    return f"{text}; lower max_model_len to {fits}, or raise gpu_memory_utilization{smaller}"


def longest_that_fits(demand: CacheDemand, costs: FixedCosts, budget_bytes: int, wanted: int) -> int:
    """The longest sequence, up to `wanted`, for which the budget has room; at least one page."""
    low, high = demand.page_size, max(wanted, demand.page_size)
    while low < high:
        middle = (low + high + 1) // 2
        fits = demand.bytes_for_one(costs, middle) <= budget_bytes
        low, high = (middle, high) if fits else (low, middle - 1)
    return min(low, wanted)


def plan_for_pages(
    demand: CacheDemand, costs: FixedCosts, budget_bytes: int, max_model_len: int, num_pages: int
) -> MemoryPlan:
    """The plan for a number of pages that the user asked for; window groups take no more than their rows can hold."""
    all_rows = demand.pages_for_all(max_model_len)
    counts = tuple(
        min(num_pages, most) if group.window else num_pages for group, most in zip(demand.groups, all_rows, strict=True)
    )
    for needed, count in zip(demand.pages_for_one(max_model_len), counts, strict=True):
        if needed > count:
            raise CapacityError(
                f"num_pages={num_pages} cannot hold one sequence of max_model_len={max_model_len} tokens, which "
                f"needs {needed} pages of {demand.page_size}; raise num_pages or lower max_model_len"
            )
    return MemoryPlan(
        num_pages=counts,
        max_model_len=max_model_len,
        costs=costs,
        row_lines=demand.row_lines(max_model_len),
        page_bytes=demand.page_bytes(),
        budget_bytes=budget_bytes,
    )


def _mebibytes(num_bytes: int) -> int:
    return -(-num_bytes // MEBIBYTE)


def _bytes(num_pages: Sequence[int], page_bytes: Sequence[int]) -> int:
    return sum(count * size for count, size in zip(num_pages, page_bytes, strict=True))
