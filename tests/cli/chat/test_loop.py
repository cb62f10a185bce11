"""The way through a conversation: commands and questions at a prompt, questions alone in a pipe, errors as lines."""

from __future__ import annotations

import os
import signal

import pytest

from pagoda.cli.chat.loop import chat_at_prompt, chat_in_pipe
from pagoda.cli.chat.turns import Turn
from pagoda.core.errors import InvalidRequest
from tests.cli.chat.conftest import Chat


def type_lines(chat: Chat, *lines: str, first: str | None = None) -> int:
    waiting = iter(lines)

    def next_line(prompt: str) -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    return chat_at_prompt(chat.session, next_line, first)


def too_long(number: int) -> None:
    raise InvalidRequest("prompt", "has 200 tokens; max_model_len is 100")


def test_at_the_prompt(chat: Chat) -> None:
    assert type_lines(chat, "one", "/set verbose", "/nonsense", '"""/two"""', "/bye", "never", first="zero") == 0
    assert [asked[-1]["content"] for asked in chat.llm.asked] == ["zero", "one", "/two"]
    lines = chat.notices.getvalue().splitlines()
    assert lines[:2] == ["model is ready; /help lists the commands", ">>> zero"]
    assert "numbers follow each answer" in lines
    assert chat.answers.getvalue() == "Hi there\n" * 3


def test_a_conversation_that_outgrows_the_context_can_be_cleared(chat: Chat) -> None:
    chat.session.answer("one")
    chat.llm.before_piece = too_long
    assert type_lines(chat, "two") == 0
    message = "prompt: has 200 tokens; max_model_len is 100; /clear forgets the conversation so far"
    assert message in chat.notices.getvalue().splitlines()
    assert chat.session.conversation.num_turns == 1 and chat.llm.num_open == 0


def test_in_a_pipe_a_slash_is_text_and_a_failure_shows_in_the_exit_code(chat: Chat) -> None:
    assert chat_in_pipe(chat.session, [Turn("one"), Turn("/bye")]) == 0
    assert [asked[-1]["content"] for asked in chat.llm.asked] == ["one", "/bye"]
    chat.llm.before_piece = too_long
    assert chat_in_pipe(chat.session, [Turn("two")]) == 1


@pytest.mark.parametrize("at_prompt", [True, False])
def test_ctrl_c_ends_a_pipe_but_not_a_prompt(chat: Chat, at_prompt: bool) -> None:
    def press(number: int) -> None:
        if len(chat.llm.asked) == 1 and number == 0:
            os.kill(os.getpid(), signal.SIGINT)

    chat.llm.before_piece = press
    if at_prompt:
        assert type_lines(chat, "one", "two") == 0
        assert chat.answers.getvalue() == "Hi\nHi there\n"
    else:
        assert chat_in_pipe(chat.session, [Turn("one"), Turn("two")]) == 130
        assert chat.answers.getvalue() == "Hi\n"
