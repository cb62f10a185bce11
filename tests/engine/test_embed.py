"""Vectors of whole texts: those of transformers, whoever shares the batch, whatever is cached, however they are cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from pagoda import LLM, SamplingParams
from pagoda.core.errors import InvalidRequest
from tests.engine.conftest import KERNELS, MakeLLM

TEXTS = [[20 + (7 * i) % 200 for i in range(length)] for length in (1, 5, 16, 17, 40, 130)]


@torch.no_grad()
def expected(reference: torch.nn.Module, token_ids: list[int], pooling: str) -> np.ndarray:
    states = reference(torch.tensor([token_ids]), output_hidden_states=True, use_cache=False).hidden_states[-1][0]
    vector = (states.mean(dim=0) if pooling == "mean" else states[-1]).double()
    return (vector / vector.norm()).numpy()


def vectors(llm: LLM, texts: list[list[int]], pooling: str) -> list[np.ndarray]:
    outputs = llm.embed(texts, pooling=pooling, use_tqdm=False)  # type: ignore[arg-type]
    assert all(output.finished and output.outputs[0].token_ids == [] for output in outputs)
    return [output.embedding for output in outputs if output.embedding is not None]


@pytest.mark.parametrize("pooling", ["mean", "last"])
@pytest.mark.parametrize("kernels", KERNELS)
def test_they_are_those_of_transformers(make_llm: MakeLLM, tiny_reference: PreTrainedModel, kernels: str, pooling: str):
    llm = make_llm(kernels=kernels, compute="f32")
    for text, vector in zip(TEXTS, vectors(llm, TEXTS, pooling), strict=True):
        assert vector.dtype == np.float32 and abs(float(np.linalg.norm(vector)) - 1) < 1e-6
        np.testing.assert_allclose(vector, expected(tiny_reference, text, pooling), atol=2e-5)


@pytest.mark.skipif("native" not in KERNELS, reason="only native sums do not hang on the batch")
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_who_shares_the_batch_and_how_texts_are_cut_changes_no_bit(make_llm: MakeLLM, pooling: str):
    alone = [vectors(make_llm(), [text], pooling)[0] for text in TEXTS]
    crowded = make_llm(max_num_batched_tokens=16, enable_prefix_caching=False)
    stream = crowded.stream(TEXTS[2], SamplingParams(max_tokens=60, ignore_eos=True))
    next(stream)  # somebody decodes beside them
    together = vectors(crowded, TEXTS, pooling)
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
    stream.close()  # type: ignore[attr-defined]


def test_a_cached_prefix_is_used_for_the_last_token_and_not_for_the_mean(make_llm: MakeLLM):
    llm = make_llm()
    for pooling, num_cached in (("mean", 0), ("last", 128)):
        fresh = make_llm(enable_prefix_caching=False)
        (first,) = vectors(fresh, [TEXTS[-1]], pooling)
        (again,) = llm.embed([TEXTS[-1]], pooling=pooling, use_tqdm=False)  # type: ignore[arg-type]
        assert again.num_cached_tokens == num_cached
        assert again.embedding is not None and np.array_equal(first, again.embedding)


def test_one_that_is_pushed_back_in_the_middle_gives_the_same(make_llm: MakeLLM):
    (expected_vector,) = vectors(make_llm(), [TEXTS[-1]], "mean")
    llm = make_llm(max_num_batched_tokens=16, max_num_seqs=4)
    request = llm._reader.request(TEXTS[-1], SamplingParams(max_tokens=1), task="embed")
    output = llm._open(request, None)
    for _ in range(3):
        llm._turn()
    llm.preempt(request.request_id)
    while not output.finished:
        llm._turn()
    assert llm.engine.loop.scheduler.board.num_preemptions == 1
    assert output.embedding is not None and np.array_equal(output.embedding, expected_vector)
    llm._settle()
    assert all(pool.num_used == 0 for pool in llm.engine.loop.scheduler.cache.pools)


def test_answers_beside_them_are_what_they_were(make_llm: MakeLLM):
    sampling = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
    (alone,) = make_llm().generate([TEXTS[1]], sampling, use_tqdm=False)
    llm = make_llm(max_num_batched_tokens=16)
    stream = llm.stream(TEXTS[1], sampling)
    next(stream)
    vectors(llm, TEXTS, "mean")
    *_, last = stream
    assert last.outputs[0].token_ids == alone.outputs[0].token_ids


def test_a_way_that_is_none_is_refused(llm: LLM):
    with pytest.raises(InvalidRequest, match="pooling: 'max' is not one of"):
        llm.embed("x", pooling="max")  # type: ignore[arg-type]
