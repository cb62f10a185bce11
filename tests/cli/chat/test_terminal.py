"""Answers go to stdout and notices to stderr; a screen is never sent a model's control characters."""

from __future__ import annotations

import io

from pagoda.cli.chat.terminal import Terminal


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_screen_shows_control_characters_and_a_pipe_passes_them_on() -> None:
    text = "red \x1b[31m\x07\x7f\x9b1m\ttab\nnext é 你"
    screen, pipe = Screen(), io.StringIO()
    Terminal(screen, io.StringIO()).write(text)
    Terminal(pipe, io.StringIO()).write(text)
    assert screen.getvalue() == "red ␛[31m␇␡\ufffd1m\ttab\nnext é 你"
    assert pipe.getvalue() == text


def test_notices_and_passing_lines_stay_off_the_answers() -> None:
    answers, notices = io.StringIO(), io.StringIO()
    terminal = Terminal(answers, notices)
    terminal.notice("hear")
    terminal.show_passing("loading")
    assert (answers.getvalue(), notices.getvalue()) == ("", "hear\n")
    screen = Screen()
    Terminal(answers, screen).show_passing("loading")
    assert screen.getvalue() == "\r\x1b[Kloading"
