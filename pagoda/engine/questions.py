"""What may be asked of an engine beside its work. It answers between two steps, from what it knows anyway.

A new question is a record in `Question`, its answer a record in `Content`, and a case in `answer_to`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from pagoda.core.errors import PagodaError
from pagoda.scheduler.words import Story, find_stories

if TYPE_CHECKING:
    from pagoda.engine.build import Engine
from pagoda.engine.snapshot import Snapshot, take_snapshot

logger = logging.getLogger(__name__)


class WhyQuestion(msgspec.Struct, frozen=True, array_like=True, tag="why"):
    """What became of a call: of the request with this id, or of those that carry it and a number."""

    name: str


class StateQuestion(msgspec.Struct, frozen=True, array_like=True, tag="state"):
    """How things stand."""


class Stories(msgspec.Struct, frozen=True, array_like=True, tag="stories"):
    stories: tuple[Story, ...]


class NoAnswer(msgspec.Struct, frozen=True, array_like=True, tag="no_answer"):
    message: str


Question = WhyQuestion | StateQuestion
Content = Stories | Snapshot | NoAnswer


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """The answer carries the same number."""

    number: int
    question: Question


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    number: int
    content: Content


def answer_to(ask: Ask, engine: Engine) -> Answer:
    """A question never harms the engine: what goes wrong is the answer."""
    try:
        return Answer(ask.number, _content(ask.question, engine))
    except PagodaError as error:
        return Answer(ask.number, NoAnswer(str(error)))
    except Exception:
        logger.exception("a question could not be answered: %s", type(ask.question).__name__)
        return Answer(ask.number, NoAnswer("the question could not be answered"))


def _content(question: Question, engine: Engine) -> Content:
    match question:
        case WhyQuestion():
            return Stories(tuple(find_stories(engine.loop.scheduler.log, question.name)))
        case StateQuestion():
            return take_snapshot(engine.loop)
