from __future__ import annotations

import itertools

import pytest

from pagoda.bench.conversation import Conversation
from pagoda.bench.lengths import Lengths
from pagoda.bench.synthetic import Synthetic
from pagoda.core.errors import InvalidRequest

FIVE, SEVEN = Lengths("constant", (5,)), Lengths("constant", (7,))


def take(synthetic: Synthetic, count: int = 20) -> list[Conversation]:
    return list(itertools.islice(synthetic.conversations(), count))


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    assert take(Synthetic(FIVE, SEVEN, seed=1)) == take(Synthetic(FIVE, SEVEN, seed=1))
    assert take(Synthetic(FIVE, SEVEN, seed=1)) != take(Synthetic(FIVE, SEVEN, seed=2))


def test_ids_have_the_drawn_lengths_and_stay_in_the_vocabulary() -> None:
    for conversation in take(Synthetic(FIVE, SEVEN, end_of_ids=100)):
        [question] = conversation.questions
        assert len(question.prompt) == 5 and question.max_tokens == 7
        assert all(10 <= token < 100 for token in question.prompt)  # type: ignore[operator]


def test_text_is_made_of_as_many_words() -> None:
    [question] = take(Synthetic(FIVE, SEVEN, form="text"))[0].questions
    assert isinstance(question.prompt, str) and len(question.prompt.split()) == 5


@pytest.mark.parametrize("form", ["ids", "text"])
def test_each_question_begins_with_one_of_the_prefixes(form: str) -> None:
    drawn = take(Synthetic(FIVE, SEVEN, form=form, prefix_len=30, num_prefixes=3), 60)  # type: ignore[arg-type]
    prompts = [conversation.questions[0].prompt for conversation in drawn]
    words = [prompt.split() if isinstance(prompt, str) else prompt for prompt in prompts]
    assert {len(one) for one in words} == {35}
    assert len({tuple(map(str, one[:30])) for one in words}) == 3
    assert len({tuple(map(str, one[30:])) for one in words}) == 60


def test_turns_share_the_prefix_of_the_first() -> None:
    [conversation] = take(Synthetic(FIVE, SEVEN, form="text", prefix_len=30, num_turns=3), 1)
    assert [len(str(question.prompt).split()) for question in conversation.questions] == [35, 5, 5]


@pytest.mark.parametrize(
    "settings",
    [{"num_turns": 2}, {"num_turns": 0}, {"num_prefixes": 0}, {"prefix_len": -1}, {"end_of_ids": 10}],
)
def test_nonsense_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        Synthetic(FIVE, SEVEN, **settings)  # type: ignore[arg-type]
