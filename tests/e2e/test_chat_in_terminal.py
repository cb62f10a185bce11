"""`pagoda run` at a real terminal: prompts, commands, texts of several lines, Ctrl-C and Ctrl-D."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.terminal_process import CTRL_C, CTRL_D, TerminalProcess
from tests.fakes.lookup_model import SAYING, write_lookup_model

PROMPT = "\n>>> "


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    # A context that no answer fills before Ctrl-C is pressed.
    return str(write_lookup_model(tmp_path_factory.mktemp("models") / "lookup.gguf", context=100_000))


@pytest.fixture
def terminal(model: str) -> Iterator[TerminalProcess]:
    with TerminalProcess("run", model, "--temperature", "0") as process:
        process.expect("is ready; /help lists the commands")
        process.expect(PROMPT)
        yield process


def test_a_question_an_answer_and_goodbye(terminal: TerminalProcess) -> None:
    terminal.type("Hello\n")
    assert terminal.expect(PROMPT) == f"Hello\n{SAYING}{PROMPT}"
    terminal.type("/bye\n")
    assert terminal.wait() == (0, "/bye\n")


def test_ctrl_c_stops_the_answer_and_not_the_program(terminal: TerminalProcess, tmp_path: Path) -> None:
    terminal.type("/set parameter ignore_eos true\n")
    terminal.expect("ignore_eos is True")
    terminal.expect(PROMPT)
    terminal.type("Go on for ever\n")
    terminal.expect(SAYING * 2)
    terminal.type(CTRL_C)
    terminal.expect(PROMPT)
    terminal.type("/set parameter ignore_eos false\n")
    terminal.expect(PROMPT)
    # Nothing of the stopped answer is left over: the next one is whole and alone.
    terminal.type("And now?\n")
    assert terminal.expect(PROMPT) == f"And now?\n{SAYING}{PROMPT}"
    terminal.type(f"/save {tmp_path / 'chat.json'}\n")
    terminal.expect("saved 2 turns")
    messages = json.loads((tmp_path / "chat.json").read_text())["messages"]
    assert messages[1]["content"].startswith(SAYING * 2)
    assert messages[3]["content"] == SAYING
    terminal.expect(PROMPT)
    terminal.type(CTRL_D)
    assert terminal.wait()[0] == 0


def test_ctrl_c_at_the_prompt_gives_up_the_line(terminal: TerminalProcess) -> None:
    terminal.type("half a line")
    terminal.expect("half a line")
    terminal.press(CTRL_C, until="(/bye or Ctrl-D leaves)")
    terminal.expect(PROMPT)
    terminal.type("/show conversation\n")
    terminal.expect("0 turns")
    terminal.expect(PROMPT)
    terminal.type(CTRL_D)
    assert terminal.wait()[0] == 0


def test_texts_of_several_lines(terminal: TerminalProcess, tmp_path: Path) -> None:
    terminal.type('"""one\n')
    terminal.expect("\n... ")
    terminal.type('two"""\n')
    terminal.expect(SAYING)
    terminal.expect(PROMPT)
    terminal.type("three\\\n")
    terminal.expect("\n... ")
    terminal.type("four\n")
    terminal.expect(SAYING)
    terminal.expect(PROMPT)
    terminal.type(f"/save {tmp_path / 'chat.json'}\n")
    terminal.expect("saved 2 turns")
    messages = json.loads((tmp_path / "chat.json").read_text())["messages"]
    assert [message["content"] for message in messages] == ["one\ntwo", SAYING, "three\nfour", SAYING]


def test_commands(terminal: TerminalProcess) -> None:
    terminal.type("/help\n")
    assert "/set parameter NAME VALUE" in terminal.expect(PROMPT)
    terminal.type("/nonsense\n")
    assert terminal.expect(PROMPT) == f"/nonsense\nthere is no command /nonsense; /help lists those there are{PROMPT}"
    terminal.type("/show\n")
    shown = terminal.expect(PROMPT)
    for words in ("llama, 1 layers", "temperature         0.0", "100000", "pages of 16 tokens", "/show template"):
        assert words in shown
    terminal.type("/show template\n")
    assert "{% for m in messages %}" in terminal.expect(PROMPT)
    terminal.type("/set verbose\n")
    terminal.expect(PROMPT)
    terminal.type("Hello\n")
    assert "10 tokens | " in terminal.expect(PROMPT)


def test_the_first_question_is_shown_with_its_answer(model: str) -> None:
    with TerminalProcess("run", model, "--temperature", "0", "--first", "Who?") as terminal:
        terminal.expect(f"\n>>> Who?\n{SAYING}{PROMPT}")
        terminal.type(CTRL_D)
        assert terminal.wait()[0] == 0
