from __future__ import annotations

import numpy as np
import pytest

from pagoda.core.plan import RowPayload
from pagoda.core.sampling_params import SamplingParams
from pagoda.executor.cuda.wishes import DrawKind, Wishes

END_TOKENS = (5,)


def wishes_of(sampling: SamplingParams, vocab_size: int = 100) -> Wishes:
    return Wishes.of(RowPayload(0, np.arange(7, dtype=np.int32), 4, sampling, 0), END_TOKENS, vocab_size)


@pytest.mark.parametrize(
    ("sampling", "kind"),
    [
        (SamplingParams(temperature=0), DrawKind.GREEDY),
        (SamplingParams(temperature=0, top_k=5, top_p=0.5), DrawKind.GREEDY),
        (SamplingParams(temperature=0.7), DrawKind.DRAWN),
        (SamplingParams(temperature=0.7, top_k=5), DrawKind.FILTERED),
        (SamplingParams(temperature=0.7, top_k=5, logprobs=2), DrawKind.SCORED),
        (SamplingParams(temperature=0, logprobs=0), DrawKind.SCORED),
        (SamplingParams(temperature=0, logprobs=2, presence_penalty=0.5), DrawKind.RULED),
        (SamplingParams(temperature=0, logit_bias={3: 1.0}), DrawKind.RULED),
        (SamplingParams(temperature=0, banned_token_ids=(3,)), DrawKind.RULED),
        (SamplingParams(temperature=0, allowed_token_ids=(3,)), DrawKind.RULED),
        (SamplingParams(temperature=0, min_tokens=2), DrawKind.RULED),
        (SamplingParams(temperature=0, min_tokens=2, ignore_eos=True), DrawKind.GREEDY),
        (SamplingParams(temperature=0.7, typical_p=0.9), DrawKind.TYPICAL),
        (SamplingParams(temperature=0.7, typical_p=0.9, logprobs=2, repetition_penalty=1.2), DrawKind.TYPICAL),
    ],
    ids=str,
)
def test_kinds_of_rows(sampling: SamplingParams, kind: DrawKind) -> None:
    assert wishes_of(sampling).kind is kind


def test_no_more_tokens_are_listed_than_there_are() -> None:
    sampling = SamplingParams(logprobs=20)
    assert wishes_of(sampling).num_scores == 21
    assert wishes_of(sampling, vocab_size=7).num_scores == 8
    assert wishes_of(SamplingParams(logprobs=0)).num_scores == 1
    assert wishes_of(SamplingParams()).num_scores == 0


def test_a_step_brings_what_draws_need() -> None:
    draws = {
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
        "min_p": 0.1,
        "typical_p": 0.9,
        "seed": 3,
        "prompt_logprobs": 2,
    }
    rules = {"logprobs": 1, "min_tokens": 2, "presence_penalty": 1.0, "frequency_penalty": 1.0}
    lists = {"repetition_penalty": 2.0, "logit_bias": {1: 1.0}, "banned_token_ids": (1,), "allowed_token_ids": (2, 3)}
    asked = wishes_of(SamplingParams(**draws, **rules, **lists))
    assert asked.drawn_with == SamplingParams(**draws)
    plain = SamplingParams(**draws | {"typical_p": 1.0})
    assert wishes_of(plain).drawn_with is plain
