"""The two ways through a conversation: at a prompt, and along the lines of a pipe."""

from __future__ import annotations

from collections.abc import Iterable

from pagoda.cli.chat.commands import Leave, run_command
from pagoda.cli.chat.session import ChatSession
from pagoda.cli.chat.turns import PROMPT, NextLine, Turn, typed_turns
from pagoda.core.errors import InvalidRequest, PagodaError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT


def chat_at_prompt(session: ChatSession, next_line: NextLine, first: str | None = None) -> int:
    terminal = session.terminal
    terminal.notice(f"{session.model} is ready; /help lists the commands")
    if first is not None:
        terminal.notice(f"{PROMPT}{first}")
        _answer(session, first)
    for turn in typed_turns(next_line, terminal.notice):
        try:
            if turn.is_command:
                run_command(session, turn.text)
            else:
                _answer(session, turn.text)
        except Leave:
            break
    return 0


def chat_in_pipe(session: ChatSession, turns: Iterable[Turn]) -> int:
    """Every turn is a question. One that cannot be answered does not hold up the next, but shows in the exit code."""
    code = 0
    for turn in turns:
        outcome = _answer(session, turn.text)
        if outcome == EXIT_INTERRUPTED:
            return outcome
        code = max(code, outcome)
    return code


def _answer(session: ChatSession, question: str) -> int:
    try:
        return 0 if session.answer(question) else EXIT_INTERRUPTED
    except PagodaError as error:
        outgrown = isinstance(error, InvalidRequest) and error.field in ("prompt", "text")
        hint = "; /clear forgets the conversation so far" if outgrown and session.conversation.messages else ""
        session.terminal.notice(f"{error}{hint}")
        return EXIT_FAILED
