"""The plan of a server: worked out from headers alone, and equal to what its owners then take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagoda import LLM, SamplingParams
from pagoda.core.config import EngineConfig
from pagoda.core.errors import InvalidRequest
from pagoda.engine.ledger import num_streams, plan_server, process_totals
from pagoda.executor.forward import RecordedForward
from tests.engine.conftest import MakeLLM

SETTINGS: list[dict[str, Any]] = [
    {},
    {"kernels": "reference"},
    {"compute": "f32", "kv_cache_type": "f32"},
    {"kv_cache_type": "int8", "num_threads": 3},
    {"kv_cache_type": "f16", "max_model_len": 100, "max_num_batched_tokens": 64},
    {"num_pages": 40, "max_num_seqs": 3},
]


def arrays_in(*owners: object) -> list[np.ndarray]:
    """Every array that hangs directly on these objects, or in their lists and dicts; a view counts as itself."""
    found: list[np.ndarray] = []
    for owner in owners:
        for value in vars(owner).values():
            items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
            found += [item for item in items if isinstance(item, np.ndarray)]
    return list({id(item): item for item in found}.values())


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_line_is_what_its_owner_took(make_llm: MakeLLM, settings: dict[str, Any]):
    llm = make_llm(**settings)
    executor = llm.engine.loop.executor
    assert executor.allocated_bytes() == llm.engine.memory.lines
    # The owners' own numbers are those of the arrays that are really there.
    taken = {"rows": sum(a.nbytes for a in arrays_in(executor._rows, executor._sampling))}
    layers = executor._pages.layers
    taken["pages"] = sum(a.nbytes for page in layers for a in arrays_in_pages(page))
    if isinstance(executor._forward, RecordedForward):
        program = executor._forward._program
        taken["workspace"] = sum(a.nbytes for a in arrays_in(program) if a is not program._logits_memory)
        taken["logits"] = program._logits_memory.nbytes
        taken["weights"] = sum(a.nbytes for a in arrays_in(executor._operators._weights))
    for line, num_bytes in taken.items():
        assert num_bytes == llm.engine.memory.lines[line], line


def arrays_in_pages(pages: Any) -> list[np.ndarray]:
    return [a for a in (pages.keys, pages.values, pages.key_scales, pages.value_scales) if a is not None]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_plan_is_the_decision_of_the_engine(tiny_folder: Path, settings: dict[str, Any]):
    settings = {"max_num_seqs": 8, "max_num_batched_tokens": 64} | settings
    ledger = plan_server(EngineConfig(model=str(tiny_folder), **settings))
    with LLM(tiny_folder, **settings) as llm:
        engine = llm.engine
        assert ledger.memory.lines == engine.memory.lines and ledger.memory.num_pages == engine.memory.num_pages
        assert ledger.kv_cache_type == engine.kv_cache_type
    exact = {line.name: line.num_bytes for line in ledger.lines if not line.is_estimate}
    assert exact == ledger.memory.lines
    assert sum(ledger.process_bytes.values()) == sum(line.num_bytes for line in ledger.lines)
    assert set(process_totals(ledger.lines)) == {"engine", "http", "supervisor"}


def test_nothing_is_loaded_for_a_plan(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a plan packs no weight and takes no memory to work in")

    monkeypatch.setattr("pagoda.kernels.cpu.weights.PackedWeights._pack", refuse)
    monkeypatch.setattr("pagoda.kernels.cpu.program.Program.__init__", refuse)
    assert plan_server(EngineConfig(model=str(tiny_folder))).memory.total_bytes > 0


def test_logits_stay_in_the_memory_that_was_planned(make_llm: MakeLLM):
    llm = make_llm()
    lines = llm.engine.memory.lines
    for count in (1, 8, 3):
        llm.generate([[5, 6, number] for number in range(count)], SamplingParams(max_tokens=4, ignore_eos=True))
        assert llm.engine.loop.executor.allocated_bytes() == lines
    # Scores of a whole prompt need more rows, and only for that step.
    llm.generate([list(range(5, 60))], SamplingParams(max_tokens=2, prompt_logprobs=1, ignore_eos=True))
    llm.generate([[5, 6, 7]], SamplingParams(max_tokens=2, ignore_eos=True))
    assert llm.engine.loop.executor.allocated_bytes() == lines


def test_what_fits_really_fits(tiny_folder: Path):
    """By counting: so many rows of a length, and not one more, have pages."""
    config = EngineConfig(model=str(tiny_folder), max_num_seqs=8, num_pages=40, max_num_batched_tokens=64)
    ledger = plan_server(config)
    (now,) = [found for found in ledger.capacities if found.kv_cache_type == ledger.kv_cache_type]
    assert now.num_tokens == 640 and now.max_model_len == 512
    with LLM(tiny_folder, max_num_seqs=8, num_pages=40, max_num_batched_tokens=64) as llm:
        model, memory = llm.engine.model, llm.engine.memory
        assert num_streams(config, model, memory, 128) == 5 and num_streams(config, model, memory, 512) == 1
        assert now.streams[512] == 1
        prompts = [[5 + number] * 100 for number in range(5)]
        llm.generate(prompts, SamplingParams(max_tokens=28, ignore_eos=True))
        assert llm.engine.loop.scheduler.board.num_preemptions == 0


def test_a_type_that_takes_less_fits_more(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch):
    from pagoda.engine import memory_plan

    free = plan_server(EngineConfig(model=str(tiny_folder), max_num_seqs=8))
    tight = free.memory.total_bytes - free.memory.cache_bytes * 3 // 4
    monkeypatch.setattr(memory_plan, "available_bytes", lambda: 2 * tight)
    by_type = {c.kv_cache_type: c for c in plan_server(EngineConfig(model=str(tiny_folder), max_num_seqs=8)).capacities}
    assert by_type["f32"].num_tokens < by_type["f16"].num_tokens < by_type["int8"].num_tokens
    assert by_type["f32"].bytes_per_token == 2 * by_type["f16"].bytes_per_token


def test_a_plan_for_a_gpu_needs_none(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = EngineConfig(model=str(tiny_folder), device="cuda", max_num_seqs=8, max_num_batched_tokens=64)
    with pytest.raises(InvalidRequest, match="gpu_memory: torch finds no CUDA device here"):
        plan_server(config)
    ledger = plan_server(config, 8 << 30)
    assert ledger.memory.total_bytes <= ledger.memory.budget_bytes == int((8 << 30) * config.gpu_memory_utilization)
    on_device = {line.name: line.num_bytes for line in ledger.lines if line.process == "device"}
    assert on_device == ledger.memory.lines
    assert [line.name for line in ledger.lines if line.process == "device" and line.is_estimate] == ["libraries"]
    assert [line.num_bytes > 0 for line in ledger.lines if line.name == "pinned"] == [True]
    by_type = {found.kv_cache_type: found for found in ledger.capacities}
    assert set(by_type) == {ledger.kv_cache_type, "fp8"}
    plain = {"bf16": 2, "f32": 4}[ledger.kv_cache_type]
    assert by_type[ledger.kv_cache_type].bytes_per_token == plain * by_type["fp8"].bytes_per_token


def test_memory_of_a_gpu_is_no_matter_for_a_cpu(tiny_folder: Path):
    with pytest.raises(InvalidRequest, match="gpu_memory"):
        plan_server(EngineConfig(model=str(tiny_folder)), 8 << 30)
