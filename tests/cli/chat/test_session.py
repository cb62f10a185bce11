"""A session: history, partial answers, nothing left open, a full context, base models."""

from __future__ import annotations

import os
import signal

import pytest

from pagoda.cli.chat.conversation import Message
from pagoda.core.errors import InvalidRequest
from tests.cli.chat.conftest import Chat
from tests.fakes.chat_llm import ChatLLM


def test_answers_are_streamed_and_remembered(chat: Chat) -> None:
    assert chat.session.answer("one") and chat.session.answer("two")
    assert chat.answers.getvalue() == "Hi there\nHi there\n"
    assert chat.notices.getvalue() == ""
    assert chat.llm.asked[1] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Hi there"},
        {"role": "user", "content": "two"},
    ]


def test_the_system_text_comes_first(chat: Chat) -> None:
    chat.session.set_system("Be short.")
    chat.session.answer("one")
    assert chat.llm.asked[0][0] == {"role": "system", "content": "Be short."}


@pytest.mark.parametrize("num_presses", [1, 2])
def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(chat: Chat, num_presses: int) -> None:
    def press(number: int) -> None:
        for _ in range(num_presses if number == 1 else 0):
            os.kill(os.getpid(), signal.SIGINT)

    chat.llm.pieces = ["a", "b", "c", "d"]
    chat.llm.before_piece = press
    before = signal.getsignal(signal.SIGINT)
    assert not chat.session.answer("go")
    # The second press does not wait for the piece that the first one let through.
    said = "ab" if num_presses == 1 else "a"
    assert chat.answers.getvalue() == f"{said}\n"
    assert chat.session.conversation.messages == [Message("user", "go"), Message("assistant", said)]
    assert chat.llm.num_open == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_a_question_without_any_answer_is_not_remembered(chat: Chat) -> None:
    def press(number: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    chat.llm.before_piece = press
    assert not chat.session.answer("go")
    assert chat.session.conversation.messages == [] and chat.llm.num_open == 0


def test_a_reader_that_leaves_leaves_nothing_open(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(text: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(chat.session.terminal, "write", gone)
    with pytest.raises(BrokenPipeError):
        chat.session.answer("go")
    assert chat.llm.num_open == 0


def test_an_answer_that_fills_the_context_says_so(chat: Chat) -> None:
    chat.llm.finish_reason = "length"
    chat.session.answer("short of it")
    assert chat.notices.getvalue() == ""
    chat.llm.num_prompt_tokens = 98
    chat.session.answer("up to it")
    assert chat.notices.getvalue() == "(the context of 100 tokens is full; /clear begins a new conversation)\n"


def test_a_base_model_completes_without_history() -> None:
    chat = Chat(ChatLLM(template=None))
    chat.session.answer("Once upon")
    chat.session.answer("a time")
    assert chat.llm.asked == ["Once upon", "a time"]
    assert chat.llm.sampling[0].max_tokens == 256
    assert chat.session.conversation.messages == []
    with pytest.raises(InvalidRequest, match="no chat template"):
        chat.session.set_system("Be short.")


def test_numbers_on_request(chat: Chat) -> None:
    chat.session.is_verbose = True
    chat.session.answer("one")
    line = "[2 tokens | 1.0 tokens/s | first after 0.50 s | prompt 5 tokens, 0 cached | stop]\n"
    assert chat.notices.getvalue() == line
