"""The ledger: pages for one row, for all rows, and what a budget can hold."""

from __future__ import annotations

import io
import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.cache import CacheGroup
from pagoda.core.errors import CapacityError
from pagoda.executor import memory
from pagoda.executor.memory import (
    CacheDemand,
    FixedCosts,
    available_bytes,
    longest_that_fits,
    plan_for_pages,
    plan_memory,
)

FULL = CacheGroup("full", (0, 1, 2), 2, 16)
WINDOW = CacheGroup("window", (3,), 2, 16, window=100)


def demand(*groups: CacheGroup, page_size: int = 16, num_seqs: int = 4, num_step: int = 64) -> CacheDemand:
    return CacheDemand(groups=groups, page_size=page_size, max_num_seqs=num_seqs, max_num_batched_tokens=num_step)


def test_bytes_of_a_page():
    assert demand(FULL, WINDOW).page_bytes() == (16 * 3 * 2 * 2 * 16 * 4, 16 * 1 * 2 * 2 * 16 * 4)


@pytest.mark.parametrize(("kv_cache_type", "head_bytes"), [("f32", 64), ("f16", 32), ("int8", 16 + 4)])
def test_bytes_of_a_page_by_type(kv_cache_type, head_bytes):
    wanted = msgspec.structs.replace(demand(FULL, WINDOW), kv_cache_type=kv_cache_type)
    assert wanted.page_bytes() == (16 * 3 * 2 * 2 * head_bytes, 16 * 1 * 2 * 2 * head_bytes)


@pytest.mark.parametrize(("num_tokens", "pages"), [(1, (1, 1)), (16, (1, 1)), (17, (2, 2)), (1000, (63, 12))])
def test_pages_of_one_sequence(num_tokens, pages):
    assert demand(FULL, WINDOW).pages_for_one(num_tokens) == pages
    assert demand(FULL, WINDOW).pages_for_all(num_tokens) == tuple(4 * count for count in pages)


@given(
    num_tokens=st.integers(1, 2000),
    window=st.integers(1, 300),
    num_step=st.integers(1, 128),
    page_size=st.sampled_from([1, 4, 16]),
)
def test_a_window_never_holds_more_than_is_planned(num_tokens, window, num_step, page_size):
    """Followed step by step: pages from the first that the next token sees to the last that the step writes."""
    group = CacheGroup("window", (0,), 1, 8, window=window)
    planned = demand(group, page_size=page_size, num_step=num_step).pages_for_one(num_tokens)[0]
    computed = held = 0
    while computed < num_tokens:
        first = max(0, computed - window + 1) // page_size
        computed = min(num_tokens, computed + num_step)
        held = max(held, -(-computed // page_size) - first)
    assert held <= planned


@given(
    budget=st.integers(0, 40_000_000),
    weights=st.integers(0, 10_000_000),
    length=st.integers(1, 4096),
    num_seqs=st.integers(1, 64),
)
def test_a_plan_keeps_its_budget_and_fits_one_sequence(budget, weights, length, num_seqs):
    asked = demand(FULL, WINDOW, num_seqs=num_seqs)
    try:
        plan = plan_memory(asked, FixedCosts(weights=weights, workspace=7, logits=5), budget, length)
    except CapacityError as error:
        needed = sum(n * size for n, size in zip(asked.pages_for_one(length), asked.page_bytes(), strict=True))
        assert weights + 12 + asked.rows_bytes(length) + needed > budget
        assert f"one sequence of {length} tokens" in str(error) and "raise gpu_memory_utilization" in str(error)
        return
    assert plan.total_bytes == weights + 12 + plan.cache_bytes + sum(plan.row_lines.values())
    assert plan.total_bytes <= budget
    for count, one, every in zip(plan.num_pages, asked.pages_for_one(length), asked.pages_for_all(length), strict=True):
        assert one <= count <= every


@given(budget=st.integers(0, 40_000_000), wanted=st.integers(1, 4096))
def test_the_longest_that_fits_fits_and_no_longer_does(budget, wanted):
    asked = demand(FULL, WINDOW)
    costs = FixedCosts(weights=1000)
    length = longest_that_fits(asked, costs, budget, wanted)
    assert 1 <= length <= wanted

    def needed(num_tokens: int) -> int:
        pages = asked.pages_for_one(num_tokens)
        return (
            1000
            + asked.rows_bytes(num_tokens)
            + sum(count * size for count, size in zip(pages, asked.page_bytes(), strict=True))
        )

    if length < wanted:
        assert needed(length + 1) > budget
    if length > 16:
        assert needed(length) <= budget


def test_a_number_of_pages_is_for_every_group_up_to_what_it_can_use():
    asked = demand(FULL, WINDOW)
    costs = FixedCosts(weights=0)
    assert plan_for_pages(asked, costs, 1 << 30, 1000, 100).num_pages == (100, 48)
    assert plan_for_pages(asked, costs, 1 << 30, 1000, 63).num_pages == (63, 48)
    with pytest.raises(CapacityError, match="num_pages=62 cannot hold one sequence of max_model_len=1000"):
        plan_for_pages(asked, costs, 1 << 30, 1000, 62)


def test_what_would_help_is_named():
    asked = demand(FULL)
    with pytest.raises(CapacityError, match="take a smaller model"):
        plan_memory(asked, FixedCosts(weights=10_000_000), 5_000_000, 100)
    with pytest.raises(CapacityError, match="lower max_model_len to .*set kv_cache_type to int8") as caught:
        plan_memory(asked, FixedCosts(weights=0), 500_000, 4000)
    fits = int(str(caught.value).partition("max_model_len to ")[2].partition(",")[0])
    assert plan_memory(asked, FixedCosts(weights=0), 500_000, fits).max_model_len == fits


def test_memory_that_only_caches_files_counts_as_available(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "cgroup_available_bytes", lambda: None)
    lines = "MemTotal:  2000 kB\nMemFree:  100 kB\nMemAvailable:  900 kB\n"
    monkeypatch.setattr(memory, "open", lambda *_, **__: io.StringIO(lines), raising=False)
    assert available_bytes() == 900 * 1024
    monkeypatch.setattr(memory, "open", lambda *_, **__: io.StringIO("MemAvailable: much\n"), raising=False)
    assert 0 < available_bytes() <= physical_bytes()
    monkeypatch.setattr(memory, "open", refuse, raising=False)
    assert 0 < available_bytes() <= physical_bytes()


def refuse(*_: object, **__: object) -> None:
    raise FileNotFoundError


def physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_this_machine_has_memory():
    assert 0 < available_bytes() <= physical_bytes()
