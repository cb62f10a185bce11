"""`pagoda run`: talk with a model, at the prompt, in a pipe or for a single answer."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagoda.cli.settings import SettingOptions
from pagoda.core.config import EngineConfig
from pagoda.core.errors import InvalidRequest, PagodaError

if TYPE_CHECKING:
    from pagoda.cli.chat.session import ChatSession
    from pagoda.cli.chat.terminal import Terminal
    from pagoda.core.sampling_params import SamplingParams
    from pagoda.engine import LLM

EXAMPLES = """\
  pagoda run
  pagoda run smollm2 "What is the capital of France?"
  pagoda run ./model.gguf --temperature 0 --verbose
  echo "Name a river." | pagoda run smollm2 --system "Answer in one word."
"""

# A chat is one sequence at a time, and like other chats it is a little bolder than a bare request.
ENGINE_OPTIONS = SettingOptions(EngineConfig, left_out=("model", "seed"), own_defaults={"max_num_seqs": 1})
RECOMMENDED = "default: the model's, else"
SAMPLING_DEFAULTS: dict[str, Any] = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "max_tokens": None}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pagoda run [MODEL] [PROMPT ...] [options]"
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a name, a .gguf file or a model folder (default: smollm2)"
    )
    parser.add_argument(
        "prompt", metavar="PROMPT", nargs="*", help="answer this and leave; otherwise every line is answered"
    )
    parser.add_argument("--first", metavar="TEXT", help="answer this first, then stay in the chat")
    parser.add_argument("--system", metavar="TEXT", default="", help="what the model is told before anything else")
    parser.add_argument("--verbose", action="store_true", help="tokens/s and other numbers after each answer")
    parser.add_argument(
        "--decision-log", metavar="FILE", help="on leaving, write what the scheduler did, for `pagoda why` and `replay`"
    )
    _add_sampling(parser.add_argument_group("sampling"))
    ENGINE_OPTIONS.add_to(parser.add_argument_group("engine"))


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--temperature", metavar="X", type=float, help=f"0 takes the likeliest token ({RECOMMENDED} 0.8)"
    )
    group.add_argument(
        "--top-p", metavar="X", type=float, help=f"least share of likelihood to keep ({RECOMMENDED} 0.9)"
    )
    group.add_argument("--top-k", metavar="N", type=int, help=f"likeliest tokens to keep, 0 for all ({RECOMMENDED} 40)")
    group.add_argument("--min-p", metavar="X", type=float, help="drop what is this much less likely than the best")
    group.add_argument("--max-tokens", metavar="N", type=int, help="longest answer (default: up to the context)")
    group.add_argument("--seed", metavar="N", type=int, help="draw the same answers again")
    group.add_argument("--stop", metavar="TEXT", action="append", help="end an answer here; may be given several times")


def main(args: argparse.Namespace) -> int:
    from pagoda.cli.chat.terminal import Terminal, accept_any_text

    accept_any_text()
    if args.prompt and args.first is not None:
        raise InvalidRequest("--first", "cannot go with PROMPT, after which the chat ends")
    _sampling(args)  # a bad value is refused before anything is loaded
    terminal = Terminal()
    with _loaded(args, terminal) as (llm, name):
        from pagoda.cli.chat.loop import EXIT_INTERRUPTED
        from pagoda.cli.chat.session import ChatSession

        sampling = _sampling(args, llm.engine.sampling_defaults.known())
        session = ChatSession(llm, name, sampling, terminal)
        session.set_system(args.system)
        session.is_verbose = args.verbose
        if not session.has_template:
            terminal.notice(f"{name} has no chat template: each text is completed by itself, without a conversation")
        if args.prompt:
            return 0 if session.answer(" ".join(args.prompt)) else EXIT_INTERRUPTED
        return _chat(session, args.first)


def _sampling(args: argparse.Namespace, recommended: Mapping[str, Any] | None = None) -> SamplingParams:
    """What was said goes before what the model's files recommend, and that before the chat's own defaults."""
    from pagoda.core.sampling_params import SamplingParams

    names = ("temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "stop")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return SamplingParams(**(SAMPLING_DEFAULTS | dict(recommended or {}) | given))


@contextmanager
def _loaded(args: argparse.Namespace, terminal: Terminal) -> Iterator[tuple[LLM, str]]:
    """The model and what to call it; on leaving, the decision log is written and the model closed."""
    from pagoda.cli.progress import show_progress
    from pagoda.engine.device import settled
    from pagoda.weights.registry import DEFAULT_MODEL
    from pagoda.weights.store import ensure_model

    name = args.model or DEFAULT_MODEL
    settings = settled(ENGINE_OPTIONS.given(args))
    EngineConfig(model=name, **settings)  # a bad setting is refused before anything is fetched
    log = Path(args.decision_log) if args.decision_log else None
    if log is not None and not log.absolute().parent.is_dir():
        raise InvalidRequest("--decision-log", f"there is no folder {log.parent}")
    with show_progress() as progress:
        path = ensure_model(name, progress)
    terminal.show_passing(f"loading {name}")
    try:
        from pagoda.engine import LLM

        llm = LLM(path, **settings)
    finally:
        terminal.show_passing("")
    with llm:
        try:
            yield llm, name
        finally:
            if log is not None:
                _save_log(llm, log)


def _save_log(llm: LLM, path: Path) -> None:
    try:
        llm.save_decision_log(path)
    except OSError as error:
        raise PagodaError(f"cannot write the decision log {path}: {error.strerror or error}") from None


def _chat(session: ChatSession, first: str | None) -> int:
    from pagoda.cli.chat.loop import chat_at_prompt, chat_in_pipe
    from pagoda.cli.chat.turns import Turn, piped_turns, terminal_line_reader

    if sys.stdin is not None and sys.stdin.isatty():
        return chat_at_prompt(session, terminal_line_reader(), first)
    opening = [Turn(first)] if first is not None else []
    return chat_in_pipe(session, itertools.chain(opening, piped_turns(sys.stdin) if sys.stdin else ()))
