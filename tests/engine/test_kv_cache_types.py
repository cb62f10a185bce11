"""A cache of halves or of bytes: near the float32 answers, the same in every batch, and as large as the ledger says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from pagoda import LLM, SamplingParams
from tests.engine.conftest import KERNELS, VOCAB_SIZE, MakeLLM
from tests.engine.independence import ALONE, Variant, differences, run
from tests.engine.test_independence import random_cases

TYPES = ("f32", "f16", "int8")
# How far log-probabilities may move: much for bytes, since the tiny model has short heads and random weights.
LOSS = {"f32": 0.0, "f16": 0.02, "int8": 0.4}


def prompt_scores(llm: LLM, prompt: Sequence[int]) -> np.ndarray:
    [output] = llm.generate([list(prompt)], SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False)
    assert output.prompt_logprobs is not None
    scores = [entry[token].logprob for token, entry in zip(prompt[1:], output.prompt_logprobs[1:], strict=True)]
    return np.array(scores)


@pytest.mark.parametrize("kv_cache_type", TYPES)
@pytest.mark.parametrize("kernels", KERNELS)
def test_scores_stay_near_those_of_float32(make_llm: MakeLLM, kernels: str, kv_cache_type: str):
    prompt = np.random.default_rng(3).integers(4, VOCAB_SIZE, 300).tolist()
    exact = prompt_scores(make_llm(kernels="reference"), prompt)
    settings = {"kernels": kernels, "kv_cache_type": kv_cache_type, "max_num_batched_tokens": 64}
    found = prompt_scores(make_llm(**settings), prompt)
    assert np.abs(found - exact).max() <= LOSS[kv_cache_type] + 1e-3
    twin = prompt_scores(make_llm(**settings | {"kernels": "reference"}), prompt)
    # A sum that rounds another way may put a number on the next step of its byte.
    np.testing.assert_allclose(found, twin, rtol=0, atol=0.05 if kv_cache_type == "int8" else 5e-3)


@pytest.mark.parametrize("kv_cache_type", ["f16", "int8"])
@pytest.mark.parametrize("variant", [Variant(8, 16), Variant(64, 512), Variant(64, 64, preempts=True)], ids=str)
def test_answers_do_not_hang_on_company_chunks_or_a_warm_cache(
    tiny_folder: Path, make_llm: MakeLLM, kv_cache_type: str, variant: Variant
):
    """Prefixes found in the cache, pages copied for three samples of one prompt, requests begun anew."""
    if "native" not in KERNELS:
        pytest.skip("the native kernels were not built")
    cases = random_cases()
    shared = {"kernels": "native", "kv_cache_type": kv_cache_type}
    with LLM(tiny_folder, num_threads=1, **shared, **ALONE.settings()) as llm:
        expected = run(llm, cases, ALONE)
    few = {"num_pages": 40, "max_model_len": 160} if variant.preempts else {}
    llm = make_llm(**shared, **variant.settings() | few)
    assert not differences(llm, cases, expected, run(llm, cases, variant))


@pytest.mark.parametrize("kernels", KERNELS)
def test_the_ledger_knows_what_a_page_takes(make_llm: MakeLLM, kernels: str):
    for kv_cache_type in ("auto", *TYPES):
        llm = make_llm(kernels=kernels, kv_cache_type=kv_cache_type, num_pages=9)
        taken = sum(
            array.nbytes
            for layer in llm.engine.loop.executor._pages.layers
            for array in vars(layer).values()
            if array is not None
        )
        assert taken == llm.engine.memory.cache_bytes
