"""What a step asks for at the least, against counts that are made without looking at the engine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from pagoda.bench.demand import Demand, Matrices
from pagoda.bench.shapes import StepShape
from pagoda.executor.cuda.recording import record
from pagoda.kernels.base import StoredWeight, Weight
from pagoda.kernels.cpu.library import available_instruction_sets
from pagoda.models import load_model
from pagoda.weights.checkpoint import open_checkpoint
from tests.bench.conftest import MakeLLM
from tests.kernels.cpu.families import FAMILIES, make_reference

needs_native = pytest.mark.skipif(not available_instruction_sets(), reason="the native library was not built")

# By hand, for the model of tests/fakes/config_folder.py: width 64, 4 heads and 2 of keys of 16, MLP of 96, 2 layers.
PER_LAYER = 64 * 64 + 2 * (32 * 64) + 64 * 64 + 3 * (96 * 64)
LATE = 64 * 64 + 3 * (96 * 64)  # behind the last attention
BODY = 2 * PER_LAYER - LATE
HEAD = 320 * 64 + LATE
NORMS, LATE_NORMS = 3 * 64, 2 * 64


@needs_native
def test_a_tiny_model_by_hand(make_llm: MakeLLM) -> None:
    demand = Demand.of(make_llm(kernels="native").engine)
    assert demand.body.num_factors == {"f32": BODY}
    assert demand.body.num_bytes == 2 * BODY + 4 * NORMS, "matrices in bf16, vectors in singles"
    assert demand.head.num_factors == {"f32": HEAD} and demand.head.num_bytes == 2 * HEAD + 4 * LATE_NORMS
    assert demand.cached_bytes == (2 * 2 * 2 * 16 * 4,), "keys and values of 2 layers, 2 heads of 16 singles"
    assert demand.pair_operations == (2 * 4 * 4 * 16,)

    work = demand.work(StepShape(num_tokens=7, num_logits=2, num_cached=(50,), num_pairs=(90,), is_decode=False))
    assert work.num_bytes == 2 * (BODY + HEAD) + 4 * (NORMS + LATE_NORMS) + 50 * 512
    assert work.operations == {"f32": 2 * 7 * BODY + 2 * 2 * HEAD + 90 * 512}
    assert work.num_operations == work.operations["f32"]


def test_a_step_that_draws_nothing_reads_no_head(make_llm: MakeLLM) -> None:
    demand = Demand.of(make_llm(kernels="reference").engine)
    work = demand.work(StepShape(7, 0, (0,), (0,), is_decode=False))
    assert work.num_bytes == 4 * (BODY + NORMS), "NumPy computes with singles"
    assert work.operations == {"f32": 2 * 7 * BODY}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_against_the_modules_of_transformers(family: str, tmp_path: Path) -> None:
    reference = make_reference(family)
    reference.save_pretrained(tmp_path)
    linears = {name: module for name, module in reference.named_modules() if isinstance(module, torch.nn.Linear)}
    head = linears.pop("lm_head")
    others = sum(parameter.numel() for name, parameter in reference.named_parameters() if "embed_tokens" not in name)
    tied = reference.config.tie_word_embeddings
    with open_checkpoint(tmp_path) as checkpoint:
        calls = record(load_model(checkpoint))[0].calls
    of_rows = [call.out is not None and call.out.is_rows for call in calls]
    body, rows = (
        Matrices.of((call for call, own in zip(calls, of_rows, strict=True) if own == wanted), in_singles)
        for wanted in (False, True)
    )
    of_last = [module for name, module in linears.items() if f".{reference.config.num_hidden_layers - 1}." in name]
    late = [module for module in of_last if module not in _heads_of(linears)]
    num_late = sum(module.weight.numel() for module in late)
    assert len(late) == 4, "behind the last attention"
    assert body.num_factors == {"f32": sum(module.weight.numel() for module in linears.values()) - num_late}
    assert rows.num_factors == {"f32": head.weight.numel() + num_late}
    all_but_embedding = others + (head.weight.numel() if tied else 0)
    assert body.num_bytes + rows.num_bytes == 4 * all_but_embedding


def _heads_of(linears: dict[str, torch.nn.Linear]) -> list[torch.nn.Linear]:
    """What makes queries, keys and values."""
    return [module for name, module in linears.items() if name[-6:] in ("q_proj", "k_proj", "v_proj")]


def in_singles(weight: Weight) -> StoredWeight:
    count = 1
    for length in weight.shape:
        count *= length
    return StoredWeight(4 * count, "f32")


def test_each_kind_of_product_is_counted_apart() -> None:
    """As on a GPU with layers in fp8: the head and attention are in bf16."""
    demand = Demand(
        body=Matrices(1000, Counter({"fp8": 900})),
        head=Matrices(400, Counter({"bf16": 200})),
        cached_bytes=(8, 4),
        pair_operations=(16, 32),
        attention="bf16",
    )
    work = demand.work(StepShape(3, 2, (10, 5), (30, 15), is_decode=False))
    assert work.num_bytes == 1000 + 400 + 80 + 20
    assert work.operations == {"fp8": 2 * 3 * 900, "bf16": 2 * 2 * 200 + 30 * 16 + 15 * 32}
