"""Turns: lines, blocks between triple quotes, continued lines, Ctrl-C and the end of the input."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from pagoda.cli.chat.turns import CONTINUATION, PROMPT, Turn, piped_turns, typed_turns


def piped(text: str) -> list[Turn]:
    return list(piped_turns(io.StringIO(text)))


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("", []),
        ("one\ntwo", ["one", "two"]),
        ("one\r\n\n  \ntwo\n", ["one", "two"]),
        ("ends in a backslash \\\nnext\n", ["ends in a backslash \\", "next"]),
        ('"""one\ntwo"""\nthree\n', ["one\ntwo", "three"]),
        ('"""\none\n\ntwo\n"""\n', ["one\n\ntwo"]),
        ('"""one"""\n', ["one"]),
        ('"""never closed\nbut here', ["never closed\nbut here"]),
        ('"""\n"""\nnext\n', ["next"]),
        ('he said """hi"""\n', ['he said """hi"""']),
    ],
)
def test_piped_lines(text: str, turns: list[str]) -> None:
    assert [turn.text for turn in piped(text)] == turns


def typed(*lines: str | type[BaseException]) -> tuple[list[Turn], list[str], list[str]]:
    """The turns, the notices and the prompts of a user who types these lines; an exception stands for its key."""
    waiting: Iterator[str | type[BaseException]] = iter([*lines, EOFError, EOFError])
    prompts: list[str] = []
    notices: list[str] = []

    def next_line(prompt: str) -> str:
        prompts.append(prompt)
        line = next(waiting)
        if not isinstance(line, str):
            raise line
        return line

    return list(typed_turns(next_line, notices.append)), notices, prompts


def test_a_line_a_block_and_a_continued_line() -> None:
    turns, _, prompts = typed("one", '"""two', 'three"""', "four\\", "five")
    assert [turn.text for turn in turns] == ["one", "two\nthree", "four\nfive"]
    assert prompts == [PROMPT, PROMPT, CONTINUATION, PROMPT, CONTINUATION, PROMPT]


def test_commands_are_known_by_their_slash_unless_quoted() -> None:
    turns, _, _ = typed("/bye", '"""/etc/hosts"""', '/set system """be', 'brief"""')
    assert [(turn.text, turn.is_command) for turn in turns] == [
        ("/bye", True),
        ("/etc/hosts", False),
        ("/set system be\nbrief", True),
    ]


def test_ctrl_c_gives_up_the_line_and_says_how_to_leave() -> None:
    turns, notices, _ = typed(KeyboardInterrupt, '"""half', KeyboardInterrupt, "whole")
    assert [turn.text for turn in turns] == ["whole"]
    assert notices[:2] == ["\n(/bye or Ctrl-D leaves)"] * 2


def test_the_end_of_the_input_ends_an_open_block_or_line() -> None:
    assert [turn.text for turn in typed('"""half')[0]] == ["half"]
    assert [turn.text for turn in typed("half\\")[0]] == ["half\n"]
