from __future__ import annotations

import itertools
import weakref
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from pagoda.executor.cuda import prompt_graphs
from pagoda.executor.cuda.prompt_graphs import PromptGraphs
from pagoda.kernels.cuda.batch import DeviceBatch
from pagoda.kernels.cuda.steps import Piece

NUMBERS = torch.zeros(4096, dtype=torch.int32)


@pytest.mark.parametrize("most", [1, 16, 24, 100, 512, 1000, 2500, 8192])
def test_every_step_has_a_size_that_is_not_much_larger(most: int) -> None:
    graphs = PromptGraphs([], most, torch.device("cpu"))
    assert graphs.size_for(most) == most
    for count in range(1, most + 1):
        padding = graphs.size_for(count) - count
        assert 0 <= padding < (64 if count <= 512 else 128 if count <= 2048 else count / 31 + 1)
        assert padding <= most - count


def batch_of(num_tokens: int, num_entries: int, num_decoding: int) -> DeviceBatch:
    tokens, entries = NUMBERS[:num_tokens], NUMBERS[:num_entries]
    return DeviceBatch(tokens, tokens, tokens, entries, entries, entries, (), num_decoding, num_tokens)


@dataclass
class Launches:
    """Three pieces, an attention among them, that note how they are launched, and graphs of them that note it too."""

    made: list[str] = field(default_factory=list)

    def pieces(self) -> list[Piece]:
        return [self._piece("before", False), self._piece("attention", True), self._piece("behind", False)]

    def _piece(self, name: str, is_attention: bool) -> Piece:
        return Piece((lambda batch, count: self.made.append(f"{name} {count}"),), is_attention)

    def take(self) -> list[str]:
        made, self.made = self.made, []
        return made


def run(graphs: PromptGraphs, num_tokens: int, num_entries: int = 2, num_decoding: int = 1) -> None:
    size = graphs.size_for(num_tokens)
    graphs.run(batch_of(num_tokens, num_entries, num_decoding), batch_of(size, num_entries, num_decoding))
    graphs.capture_due()


def test_all_but_attention_sees_the_padding_and_a_single_prompt_is_padded_throughout() -> None:
    launches = Launches()
    graphs = PromptGraphs(launches.pieces(), 64, torch.device("cpu"))
    for _ in range(3):
        run(graphs, 20)
        assert launches.take() == ["before 32", "attention 20", "behind 32"]
        run(graphs, 5, num_entries=1, num_decoding=0)
        assert launches.take() == ["before 16", "attention 16", "behind 16"]
        run(graphs, 16, num_entries=1, num_decoding=1)
        assert launches.take() == ["before 16", "attention 16", "behind 16"]


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> tuple[PromptGraphs, Launches]:
    """Graphs that are captured without a GPU: what is launched between begin and end is what a replay notes.

    As torch does, they refuse a pool whose last graph is gone.
    """
    launches = Launches()
    pools = itertools.count()
    num_graphs: Counter[int] = Counter()

    class Graph:
        def capture_begin(self, pool: int, **_: Any) -> None:
            assert pool not in num_graphs or num_graphs[pool], "its last graph gave the pool back"
            num_graphs[pool] += 1
            weakref.finalize(self, num_graphs.subtract, [pool])
            self._before = launches.take()

        def capture_end(self) -> None:
            self._noted = launches.take()
            launches.made = self._before

        def replay(self) -> None:
            launches.made.append("graph of " + ", ".join(self._noted))

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
    return PromptGraphs(launches.pieces(), 64, torch.device("cuda")), launches


def test_a_form_is_captured_when_it_comes_again_and_serves_other_compositions(
    captured: tuple[PromptGraphs, Launches],
) -> None:
    graphs, launches = captured
    for _ in range(2):
        run(graphs, 20)
        assert launches.take() == ["before 32", "attention 20", "behind 32"]
    for num_tokens, num_entries, num_decoding in ((20, 2, 1), (31, 5, 3), (17, 17, 17), (32, 2, 0)):
        run(graphs, num_tokens, num_entries, num_decoding)
        assert launches.take() == ["graph of before 32", f"attention {num_tokens}", "graph of behind 32"]
    run(graphs, 33)
    assert launches.take() == ["before 64", "attention 33", "behind 64"]


def test_large_steps_are_launched_as_they_are_unless_they_are_full(captured: tuple[PromptGraphs, Launches]) -> None:
    _, launches = captured
    graphs = PromptGraphs(launches.pieces(), 4096, torch.device("cuda"))
    for _ in range(3):
        run(graphs, 2049)
        assert launches.take() == ["before 2049", "attention 2049", "behind 2049"]
    for num_tokens in (4096, 4000, 4090):
        run(graphs, num_tokens)
    assert launches.take()[-3:] == ["graph of before 4096", "attention 4090", "graph of behind 4096"]


def test_a_single_prompt_is_one_graph(captured: tuple[PromptGraphs, Launches]) -> None:
    graphs, launches = captured
    for num_tokens in (9, 12):
        run(graphs, num_tokens, num_entries=1, num_decoding=0)
        assert launches.take() == ["before 16", "attention 16", "behind 16"]
    run(graphs, 3, num_entries=1, num_decoding=0)
    assert launches.take() == ["graph of before 16, attention 16, behind 16"]
    graphs.clear()
    run(graphs, 3, num_entries=1, num_decoding=0)
    assert launches.take() == ["before 16", "attention 16", "behind 16"]
    run(graphs, 3, num_entries=1, num_decoding=0)
    assert launches.take() == ["graph of before 16, attention 16, behind 16"]


def test_a_form_that_came_once_is_captured_in_idle_time(captured: tuple[PromptGraphs, Launches]) -> None:
    graphs, launches = captured
    assert not graphs.capture_one()
    run(graphs, 20)
    launches.take()
    assert graphs.capture_one() and not graphs.capture_one()
    run(graphs, 21)
    assert launches.take() == ["graph of before 32", "attention 21", "graph of behind 32"]


@pytest.mark.parametrize("reason", ["out of memory", "operation not permitted when stream is capturing"])
@pytest.mark.parametrize("call", ["capture_begin", "capture_end"])
def test_a_form_that_cannot_be_captured_is_launched_as_before(
    reason: str,
    call: str,
    captured: tuple[PromptGraphs, Launches],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    end = torch.cuda.CUDAGraph.capture_end

    def fail(graph: Any, **_: Any) -> None:
        if call == "capture_end":
            end(graph)
        raise RuntimeError(f"{reason}\nand more")

    monkeypatch.setattr(torch.cuda.CUDAGraph, call, fail)
    graphs, launches = captured
    for _ in range(4):
        run(graphs, 20)
        assert launches.take() == ["before 32", "attention 20", "behind 32"]
    assert not graphs.capture_one()
    said = [f"steps of 32 tokens are run without graphs: {reason}"]
    assert caplog.messages == ([] if reason == "out of memory" else said)


def test_after_one_that_failed_half_way_others_are_captured(
    captured: tuple[PromptGraphs, Launches], monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, launches = captured
    end, ends = torch.cuda.CUDAGraph.capture_end, itertools.count()

    def fail_at_the_second(graph: Any) -> None:
        end(graph)
        if next(ends) == 1:
            raise RuntimeError("out of memory")

    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_end", fail_at_the_second)
    for num_tokens in (20, 20, 40, 40):
        run(graphs, num_tokens)
    launches.take()
    run(graphs, 40)
    assert launches.take() == ["graph of before 64", "attention 40", "graph of behind 64"]


def test_the_form_that_was_used_longest_ago_goes_and_does_not_come_back_at_once(
    captured: tuple[PromptGraphs, Launches], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_graphs, "MOST_FORMS", 2)
    graphs, launches = captured
    for num_tokens in (16, 16, 32, 32, 16, 64, 64):
        run(graphs, num_tokens)
    launches.take()
    run(graphs, 16)
    run(graphs, 64)
    assert [line.startswith("graph") for line in launches.take()] == [True, False, True] * 2
    for _ in range(prompt_graphs.STEPS_AFTER_DROP):
        run(graphs, 32)
        assert launches.take()[0] == "before 32"
    run(graphs, 32)
    assert launches.take()[0] == "graph of before 32"
