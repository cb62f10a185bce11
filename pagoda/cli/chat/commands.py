"""What a chat understands beside questions: the lines that begin with a slash."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagoda.cli.chat.conversation import SavedChat, load_chat, save_chat
from pagoda.cli.chat.parameters import PARAMETERS, check_sampling, with_parameter
from pagoda.cli.chat.session import ChatSession
from pagoda.cli.chat.show import PARTS, lines_about
from pagoda.cli.chat.statistics import plural
from pagoda.core.errors import PagodaError


class Leave(Exception):
    """The user has said goodbye."""


@dataclass(frozen=True)
class Command:
    help: tuple[tuple[str, str], ...]
    """Usage and meaning of each form."""
    run: Callable[[ChatSession, str], None]

    @property
    def usage(self) -> str:
        return "usage: " + " or ".join(form for form, _ in self.help)


def run_command(session: ChatSession, line: str) -> None:
    """One line such as `/set verbose`. A mistake is answered with one line and changes nothing."""
    word, rest = _split(line)
    command = COMMANDS.get(word)
    try:
        if command is None:
            near = difflib.get_close_matches(word, COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else "/help lists those there are"
            raise PagodaError(f"there is no command {word[:64]}; {hint}")
        command.run(session, rest)
    except PagodaError as error:
        session.terminal.notice(str(error))


def _split(text: str) -> tuple[str, str]:
    word, *rest = text.split(maxsplit=1)[:2] or [""]
    return word, "".join(rest).strip()


def _help(session: ChatSession, rest: str) -> None:
    forms = [form for command in COMMANDS.values() for form in command.help]
    for usage, meaning in [*forms, *KEYS]:
        session.terminal.notice(f"  {usage:<28}{meaning}")


def _set(session: ChatSession, rest: str) -> None:
    what, value = _split(rest)
    if what == "parameter":
        _set_parameter(session, value)
    elif what == "system":
        session.set_system(value)
        session.terminal.notice("the system text is set" if value else "the system text is the template's own again")
    elif what in ("verbose", "quiet") and not value:
        session.is_verbose = what == "verbose"
        session.terminal.notice("numbers follow each answer" if session.is_verbose else "only answers are shown")
    else:
        raise PagodaError(COMMANDS["/set"].usage)


def _set_parameter(session: ChatSession, rest: str) -> None:
    name, text = _split(rest)
    if not text:
        raise PagodaError(f"usage: /set parameter NAME VALUE, where NAME is one of {', '.join(PARAMETERS)}")
    session.sampling = with_parameter(session.sampling, name, text)
    session.terminal.notice(f"{name} is {getattr(session.sampling, name)!r}")


def _show(session: ChatSession, rest: str) -> None:
    if rest and rest not in PARTS:
        raise PagodaError(COMMANDS["/show"].usage + f", where PART is one of {', '.join(PARTS)}")
    for line in lines_about(session, rest):
        session.terminal.notice(line)


def _clear(session: ChatSession, rest: str) -> None:
    session.conversation.clear()
    session.terminal.notice("the conversation is forgotten")


def _save(session: ChatSession, rest: str) -> None:
    path = _path(rest, "/save")
    conversation = session.conversation
    chat = SavedChat(
        model=session.model,
        system=conversation.system,
        parameters=session.sampling,
        messages=tuple(conversation.messages),
    )
    save_chat(path, chat)
    session.terminal.notice(f"saved {plural(conversation.num_turns, 'turn')} in {path}")


def _load(session: ChatSession, rest: str) -> None:
    path = _path(rest, "/load")
    chat = load_chat(path)
    sampling = check_sampling(chat.parameters)
    session.set_system(chat.system)
    session.sampling = sampling
    session.conversation.messages = list(chat.messages)
    session.terminal.notice(f"loaded {plural(session.conversation.num_turns, 'turn')} from {path}")


def _path(text: str, command: str) -> Path:
    if not text:
        raise PagodaError(COMMANDS[command].usage)
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise PagodaError(f"{text}: {error}") from None


def _bye(session: ChatSession, rest: str) -> None:
    raise Leave


COMMANDS = {
    "/help": Command((("/help", "this list"),), _help),
    "/set": Command(
        (
            ("/set parameter NAME VALUE", "how tokens are chosen, such as temperature 0.2"),
            ("/set system TEXT", "what the model is told first; nothing: as the template says"),
            ("/set verbose", "tokens/s and other numbers after each answer"),
            ("/set quiet", "no numbers"),
        ),
        _set,
    ),
    "/show": Command((("/show [PART]", ", ".join(PARTS)),), _show),
    "/clear": Command((("/clear", "forget the conversation"),), _clear),
    "/save": Command((("/save FILE", "write the conversation to a new file, as JSON"),), _save),
    "/load": Command((("/load FILE", "go on with a conversation that /save wrote"),), _load),
    "/bye": Command((("/bye", "leave"),), _bye),
}
KEYS = (
    ('"""', "around a text of several lines; or end each but the last in \\"),
    ("Ctrl-C", "stops an answer, which is remembered as far as it got"),
    ("Ctrl-D", "leaves"),
)
