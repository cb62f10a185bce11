"""Every command: what it changes, what it prints, and one line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.cli.chat.commands import COMMANDS, Leave, run_command
from tests.cli.chat.conftest import Chat


def said(chat: Chat, line: str) -> str:
    chat.notices.seek(0)
    chat.notices.truncate()
    run_command(chat.session, line)
    return chat.notices.getvalue()


def test_help_names_every_command(chat: Chat) -> None:
    text = said(chat, "/help")
    for name in (*COMMANDS, '"""', "Ctrl-C"):
        assert name in text
    assert max(map(len, text.splitlines())) < 100


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("/hepl", "there is no command /hepl; did you mean /help?"),
        ("/", "there is no command /; /help lists those there are"),
        ("/set", "usage: /set parameter NAME VALUE or "),
        ("/set verbose now", "usage: /set parameter NAME VALUE or "),
        ("/set parameter", "usage: /set parameter NAME VALUE, where NAME is one of n, temperature, "),
        ("/set parameter temperature", "usage: /set parameter NAME VALUE"),
        ("/set parameter temprature 1", "temprature: no such sampling field; did you mean temperature?"),
        ("/set parameter temperature hot", "temperature: 'hot' is not a finite number"),
        ("/set parameter top_p 2", "top_p: 2.0 is out of range"),
        ("/set parameter n 3", "n: a chat shows one answer, not 3"),
        ("/set parameter detokenize false", "detokenize: a chat shows text"),
        ("/show engine", "usage: /show [PART], where PART is one of model, parameters,"),
        ("/save", "usage: /save FILE"),
        ("/load", "usage: /load FILE"),
        ("/load /nonesuch/file", "cannot load /nonesuch/file: No such file or directory"),
        ("/save /nonesuch/file", "cannot save /nonesuch/file: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(chat: Chat, line: str, message: str) -> None:
    before = chat.session.sampling
    text = said(chat, line)
    assert text.startswith(message) and text.count("\n") == 1
    assert chat.session.sampling is before


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("temperature 0.2", "temperature", 0.2),
        ("top_k 40", "top_k", 40),
        ("seed none", "seed", None),
        ("seed 7", "seed", 7),
        ("max_tokens 12", "max_tokens", 12),
        ("ignore_eos true", "ignore_eos", True),
        ("stop END OF IT", "stop", ("END OF IT",)),
        ("stop 42", "stop", ("42",)),
        (r'stop ["\n", "x"]', "stop", ("\n", "x")),
        ("stop_token_ids [3, 1]", "stop_token_ids", (1, 3)),
        ('logit_bias {"5": -100}', "logit_bias", {5: -100.0}),
        ("repetition_penalty 1.1", "repetition_penalty", 1.1),
    ],
)
def test_parameters_are_set(chat: Chat, text: str, field: str, value: object) -> None:
    assert said(chat, f"/set parameter {text}") == f"{field} is {value!r}\n"
    assert getattr(chat.session.sampling, field) == value


def test_system_verbose_and_quiet(chat: Chat) -> None:
    said(chat, "/set system Be short.\nVery.")
    assert chat.session.conversation.system == "Be short.\nVery."
    said(chat, "/set system")
    assert chat.session.conversation.system == ""
    said(chat, "/set verbose")
    assert chat.session.is_verbose
    said(chat, "/set quiet")
    assert not chat.session.is_verbose


def test_clear_forgets_the_conversation_but_not_the_system_text(chat: Chat) -> None:
    chat.session.set_system("Be short.")
    chat.session.answer("one")
    said(chat, "/clear")
    assert chat.session.conversation.messages == [] and chat.session.conversation.system == "Be short."


def test_save_and_load(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    chat.session.set_system("Be short.")
    chat.session.answer("one")
    said(chat, "/set parameter temperature 0.5")
    assert said(chat, f"/save {file}") == f"saved 1 turn in {file}\n"
    assert json.loads(file.read_text())["messages"] == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Hi there"},
    ]
    assert list(tmp_path.iterdir()) == [file]
    other = Chat()
    assert said(other, f"/load {file}") == f"loaded 1 turn from {file}\n"
    assert other.session.conversation.messages == chat.session.conversation.messages
    assert (other.session.conversation.system, other.session.sampling.temperature) == ("Be short.", 0.5)


def test_save_never_overwrites(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("mine")
    assert said(chat, f"/save {file}") == f"{file} exists already and is kept; give another name\n"
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"model": "m", "parameters": {"temperature": -1}}',
        '{"model": "m", "parameters": {}, "messages": [{"role": "wizard", "content": ""}]}',
        '{"model": "m", "parameters": {"n": 2}}',
        "\xff",
        '{"model": "\xff"}',
        '{"more": ' + "[" * 10_000,
    ],
)
def test_a_file_that_is_no_conversation_is_refused_whole(chat: Chat, tmp_path: Path, content: str) -> None:
    file = tmp_path / "chat.json"
    file.write_text(content, encoding="latin-1")
    chat.session.answer("one")
    assert said(chat, f"/load {file}").count("\n") == 1
    assert chat.session.conversation.num_turns == 1 and chat.session.sampling.n == 1


def test_bye(chat: Chat) -> None:
    with pytest.raises(Leave):
        run_command(chat.session, "/bye")
