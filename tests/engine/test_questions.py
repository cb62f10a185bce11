"""A question that cannot be answered is itself answered, and harms nothing."""

from __future__ import annotations

from typing import Any

import pytest

from pagoda import LLM, SamplingParams
from pagoda.core.errors import PagodaError
from pagoda.engine import questions
from pagoda.engine.questions import Ask, NoAnswer, Stories, WhyQuestion, answer_to


def test_why_tells_of_a_request(llm: LLM):
    (output,) = llm.generate([[20, 21]], SamplingParams(max_tokens=3, ignore_eos=True))
    answer = answer_to(Ask(4, WhyQuestion(output.request_id)), llm.engine)
    assert answer.number == 4 and isinstance(answer.content, Stories)
    (story,) = answer.content.stories
    assert [decision.reason.name for decision in story.decisions] == ["QUEUED", "ADMITTED", "FINISHED"]


@pytest.mark.parametrize(
    ("error", "message"),
    [(PagodaError("too long ago"), "too long ago"), (ValueError("0x7f secret"), "the question could not be answered")],
)
def test_what_goes_wrong_is_the_answer(llm: LLM, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str):
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(questions, "find_stories", fail)
    assert answer_to(Ask(1, WhyQuestion("a")), llm.engine).content == NoAnswer(message)
