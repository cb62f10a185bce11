"""Tokens into text: stop strings, half characters, scores, and the fields that vLLM users know."""

from __future__ import annotations

import gc
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda.core.errors import CapacityError
from pagoda.core.request import Request
from pagoda.core.result import TokenLogprob
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.messages import Aborted, NewTokens, PromptScores, Rejected, Started, StopSequence
from pagoda.engine.output import CompletionOutput, Logprob, OutputProcessor, RequestOutput
from pagoda.text import Tokenizer

WORDS = "the engine plans a step, runs it and commits what came of it"


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(tiny_folder)


class Conversation:
    """One request seen from the caller's side."""

    def __init__(self, tokenizer: Tokenizer | None, **sampling: object) -> None:
        params = SamplingParams(**({"max_tokens": 500} | sampling))  # type: ignore[arg-type]
        self.processor = OutputProcessor(tokenizer)
        request = Request(request_id="r", prompt_token_ids=(5, 6, 7), sampling=params)
        self.output = self.processor.open(request, "prompt", 1.0)

    def give(self, *token_ids: int, sample: int = 0, time: float = 3.0, **more: object) -> StopSequence | None:
        update = NewTokens("r", sample, time, token_ids, **more)  # type: ignore[arg-type]
        _, then = self.processor.take(update)
        assert then is None or isinstance(then, StopSequence)
        return then


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def test_the_fields_are_those_that_vllm_users_know():
    names = {field.name for field in fields(RequestOutput)}
    assert names >= {
        "request_id",
        "prompt",
        "prompt_token_ids",
        "prompt_logprobs",
        "outputs",
        "finished",
        "metrics",
        "num_cached_tokens",
    }
    names = {field.name for field in fields(CompletionOutput)}
    assert names >= {
        "index",
        "text",
        "token_ids",
        "cumulative_logprob",
        "logprobs",
        "finish_reason",
        "stop_reason",
    }


def test_the_text_grows_with_the_tokens(tokenizer):
    talk = Conversation(tokenizer)
    tokens = ids(tokenizer, WORDS)
    seen = ""
    for token_id in tokens:
        talk.give(token_id)
        assert talk.output.outputs[0].text.startswith(seen)
        seen = talk.output.outputs[0].text
    assert seen == WORDS
    assert not talk.output.finished
    talk.give(7, finish_reason="length")
    assert talk.output.finished and talk.output.outputs[0].finish_reason == "length"
    assert talk.output.outputs[0].stop_reason is None
    assert len(talk.processor) == 0


@given(st.text(max_size=30), st.integers(1, 5))
def test_any_text_comes_out_as_it_went_in(tokenizer, text, size):
    talk = Conversation(tokenizer, skip_special_tokens=False)  # a text may spell one
    tokens = ids(tokenizer, text)
    for start in range(0, len(tokens), size):
        talk.give(*tokens[start : start + size])
    talk.give(finish_reason="abort")
    assert talk.output.outputs[0].text == text


def test_half_a_character_is_shown_at_the_end_only(tokenizer):
    talk = Conversation(tokenizer)
    first, *rest = ids(tokenizer, "é")
    assert rest, "the character must have several tokens"
    talk.give(first)
    assert talk.output.outputs[0].text == ""
    talk.give(finish_reason="abort")
    assert talk.output.outputs[0].text == "\ufffd"


@pytest.mark.parametrize(("included", "text"), [(False, "the engine plans a "), (True, "the engine plans a step")])
def test_a_stop_string_ends_the_answer(tokenizer, included, text):
    talk = Conversation(tokenizer, stop=["step", "runs"], include_stop_str_in_output=included)
    orders = [talk.give(token_id) for token_id in ids(tokenizer, WORDS)]
    assert [order for order in orders if order] == [StopSequence("r", 0)]
    answer = talk.output.outputs[0]
    assert answer.text == text
    assert (answer.finish_reason, answer.stop_reason) == ("stop", "step")
    assert tokenizer.decode(answer.token_ids).startswith("the engine plans a step")
    assert talk.output.finished


def test_tokens_after_a_stop_string_are_dropped(tokenizer):
    talk = Conversation(tokenizer, stop="plans", n=2)
    assert talk.give(*ids(tokenizer, WORDS)) == StopSequence("r", 0)
    answer = talk.output.outputs[0]
    num_tokens = len(answer.token_ids)
    assert answer.text == "the engine " and num_tokens < len(ids(tokenizer, WORDS))
    talk.give(9, 9, finish_reason="length")
    assert len(answer.token_ids) == num_tokens and answer.finish_reason == "stop"


def test_what_may_begin_a_stop_string_is_held_back_and_then_shown(tokenizer):
    talk = Conversation(tokenizer, stop="engineer")
    talk.give(*ids(tokenizer, "the engine"))
    assert talk.output.outputs[0].text == "the "
    talk.give(*ids(tokenizer, " plans"))
    assert talk.output.outputs[0].text == "the engine plans"
    talk.give(*ids(tokenizer, " engine"), finish_reason="length")
    assert talk.output.outputs[0].text == "the engine plans engine"


def test_no_stop_string_counts_before_min_tokens(tokenizer):
    tokens = ids(tokenizer, "a page, a page, a page")
    talk = Conversation(tokenizer, stop="page", min_tokens=len(ids(tokenizer, "a page")))
    orders = [talk.give(token_id) for token_id in tokens]
    assert [order is not None for order in orders].index(True) >= len(ids(tokenizer, "a page, a"))
    assert talk.output.outputs[0].text == "a page, a "


def test_the_token_that_ended_it_is_in_the_ids_and_not_in_the_text(tokenizer):
    comma = ids(tokenizer, ",")[0]
    for included, text in ((False, "the step"), (True, "the step,")):
        talk = Conversation(tokenizer, stop_token_ids=[comma], include_stop_str_in_output=included)
        talk.give(*ids(tokenizer, "the step"), comma, finish_reason="stop", stop_token_id=comma)
        answer = talk.output.outputs[0]
        assert answer.text == text and answer.token_ids[-1] == comma
        assert (answer.finish_reason, answer.stop_reason) == ("stop", comma)


@pytest.mark.parametrize(("skip", "text"), [(True, "the step"), (False, "the<|user|> step")])
def test_special_tokens_are_shown_on_demand(tokenizer, skip, text):
    talk = Conversation(tokenizer, skip_special_tokens=skip)
    talk.give(*ids(tokenizer, "the<|user|> step"))
    talk.give(tokenizer.eos_id, finish_reason="stop")
    assert talk.output.outputs[0].text == text
    assert talk.output.outputs[0].stop_reason is None


def test_without_a_tokenizer_or_detokenize_there_is_no_text(tokenizer):
    for talk in (Conversation(None), Conversation(tokenizer, detokenize=False)):
        talk.give(5, 6, finish_reason="length")
        assert talk.output.outputs[0].text == "" and talk.output.outputs[0].token_ids == [5, 6]


def test_every_sample_ends_by_itself(tokenizer):
    talk = Conversation(tokenizer, n=2)
    talk.give(*ids(tokenizer, "the"), sample=1, finish_reason="length")
    assert talk.output.outputs[1].finished and not talk.output.finished
    talk.give(*ids(tokenizer, "a"), sample=0, finish_reason="stop", time=9.0)
    assert talk.output.finished
    assert [answer.index for answer in talk.output.outputs] == [0, 1]
    assert talk.output.metrics.finished_time == 9.0


def test_metrics_tell_the_times(tokenizer):
    talk = Conversation(tokenizer)
    talk.processor.take(Started("r", 2.0, 77, 16))
    talk.give(5, time=3.0)
    talk.give(6, time=4.0)
    talk.give(time=5.0, finish_reason="abort")
    metrics = talk.output.metrics
    assert (metrics.arrival_time, metrics.first_scheduled_time) == (1.0, 2.0)
    assert (metrics.first_token_time, metrics.last_token_time, metrics.finished_time) == (3.0, 4.0, 5.0)
    assert (talk.output.num_cached_tokens, talk.output.seed) == (16, 77)


def test_logprobs_have_one_entry_a_token(tokenizer):
    talk = Conversation(tokenizer, logprobs=2)
    step, comma = ids(tokenizer, "s")[0], ids(tokenizer, ",")[0]
    scores = (TokenLogprob(step, -0.5, 1, (step, comma), (-0.5, -1.5)), TokenLogprob(9, -3.0, 7, (step,), (-0.25,)))
    talk.give(step, 9, logprobs=scores, finish_reason="length")
    answer = talk.output.outputs[0]
    assert answer.cumulative_logprob == -3.5
    assert [set(entry) for entry in answer.logprobs] == [{step, comma}, {step, 9}]
    first = answer.logprobs[0]
    assert (first[step].logprob, first[step].rank, first[step].decoded_token) == (-0.5, 1, "s")
    assert (first[comma].logprob, first[comma].rank, first[comma].decoded_token) == (-1.5, 2, ",")
    assert (answer.logprobs[1][9].logprob, answer.logprobs[1][9].rank) == (-3.0, 7)


def test_logprobs_end_with_the_stop_string(tokenizer):
    tokens = ids(tokenizer, "a, step, runs")
    talk = Conversation(tokenizer, logprobs=0, stop="step")
    talk.give(*tokens, logprobs=tuple(TokenLogprob(token_id, -1.0, 1, (), ()) for token_id in tokens))
    answer = talk.output.outputs[0]
    assert len(answer.logprobs) == len(answer.token_ids) < len(tokens)
    assert answer.cumulative_logprob == -len(answer.token_ids)


def test_the_prompt_has_a_score_for_every_token_but_the_first(tokenizer):
    talk = Conversation(tokenizer, prompt_logprobs=0)
    talk.processor.take(PromptScores("r", ((1, TokenLogprob(6, -1.0, 1, (), ())),)))
    talk.processor.take(PromptScores("r", ((2, TokenLogprob(7, -2.0, 3, (), ())),)))
    scores = talk.output.prompt_logprobs
    assert len(scores) == 3 and scores[0] is None
    assert (scores[1][6].logprob, scores[2][7].rank) == (-1.0, 3)
    assert Conversation(tokenizer).output.prompt_logprobs is None


def test_a_refusal_and_strangers(tokenizer):
    talk = Conversation(tokenizer)
    assert talk.processor.take(Aborted("somebody")) == (None, None)
    assert talk.processor.take(NewTokens("somebody", 0, 1.0, (5,))) == (None, None)
    output, error = talk.processor.take(Rejected.of("r", CapacityError("too long")))
    assert output is talk.output and isinstance(error, CapacityError) and str(error) == "too long"
    assert "r" not in talk.processor and not talk.output.finished


def test_a_stop_string_may_be_completed_by_the_end(tokenizer):
    """Half a character becomes U+FFFD when nothing follows it."""
    talk = Conversation(tokenizer, stop="a\ufffd")
    first = ids(tokenizer, "é")[0]
    talk.give(*ids(tokenizer, "the a"), first, finish_reason="length")
    answer = talk.output.outputs[0]
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("the ", "stop", "a\ufffd")


def test_without_a_tokenizer_tokens_have_no_names():
    talk = Conversation(None, logprobs=0)
    talk.give(5, logprobs=(TokenLogprob(5, -1.0, 1, (), ()),), finish_reason="length")
    assert talk.output.outputs[0].logprobs[0][5].decoded_token is None


def test_log_probabilities_are_nothing_for_the_collector() -> None:
    """Of a long prompt there are tens of thousands, and a look at all objects takes longer than to make them."""
    score = Logprob(-0.5, 1, "a")
    assert not gc.is_tracked(score)
    assert score == Logprob(-0.5, 1, "a") and repr(score) == "Logprob(logprob=-0.5, rank=1, decoded_token='a')"
