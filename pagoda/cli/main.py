"""The `pagoda` command: finds the verb, imports its module alone, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, Protocol, cast

from pagoda.core.environment import VARIABLES
from pagoda.core.errors import PagodaError

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


@dataclass(frozen=True)
class Verb:
    """Of one word or two. Its module has `add_arguments(parser)`, `main(args) -> int` and the text `EXAMPLES`."""

    name: str
    module: str
    summary: str


VERBS = (
    Verb("run", "pagoda.cli.run", "talk with a model"),
    Verb("serve", "pagoda.cli.serve", "answer requests over HTTP, as OpenAI does"),
    Verb("plan", "pagoda.cli.plan", "tell what memory a server would take, and what would fit"),
    Verb("pull", "pagoda.cli.pull", "fetch a model into the store"),
    Verb("list", "pagoda.cli.list", "list the models in the store"),
    Verb("show", "pagoda.cli.show", "tell what is known about a model"),
    Verb("rm", "pagoda.cli.rm", "remove a model from the store"),
    Verb("why", "pagoda.cli.why", "tell why a request waited, was cut or was pushed back"),
    Verb("replay", "pagoda.cli.replay", "run a scheduler's log again and compare every plan"),
    Verb("bench serve", "pagoda.cli.bench.serve", "put load on an OpenAI server and see how it holds"),
    Verb("bench throughput", "pagoda.cli.bench.throughput", "run a workload here, beside what the device allows"),
    Verb("bench latency", "pagoda.cli.bench.latency", "time one batch here, beside what the device allows"),
)


class VerbModule(Protocol):
    EXAMPLES: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def main(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            return _dispatch(arguments)
        finally:
            # Here, where a closed pipe can still be answered, and not at interpreter exit.
            sys.stdout.flush()
    except PagodaError as error:
        print(f"pagoda: error: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has left. Give the interpreter's last flush somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _dispatch(arguments: list[str]) -> int:
    verbs = {verb.name: verb for verb in VERBS}
    for num_words in (2, 1):  # some verbs have two
        verb = verbs.get(" ".join(arguments[:num_words]))
        if verb is not None:
            return _run_verb(verb, arguments[num_words:])
    parser = _top_parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return EXIT_USAGE
    if not arguments[0].startswith("-"):
        _refuse_verb(parser, arguments[0])
    parser.parse_args(arguments[:1])
    parser.error(f"{arguments[0]} takes no verb")


def _run_verb(verb: Verb, arguments: list[str]) -> int:
    module = cast(VerbModule, importlib.import_module(verb.module))
    parser = OneLineParser(
        prog=f"pagoda {verb.name}",
        description=f"{verb.summary[0].upper()}{verb.summary[1:]}.",
        epilog=f"examples:\n{module.EXAMPLES.rstrip()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    # Intermixed, so that options may stand between a model and its prompt.
    return module.main(parser.parse_intermixed_args(arguments))


class OneLineParser(argparse.ArgumentParser):
    """Says in one line what is wrong with a command, without the list of all that would have been right."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: error: {message} (see: {self.prog} --help)\n")


def _top_parser() -> argparse.ArgumentParser:
    verbs = "\n".join(f"  {verb.name:<18}{verb.summary}" for verb in VERBS)
    variables = "\n".join(f"  {var.name:<15}{var.meaning} (default {var.default})" for var in VARIABLES)
    parser = OneLineParser(
        prog="pagoda",
        usage="pagoda [--version] [--help] VERB ...",
        description="Run language models on your own machine.",
        epilog=f"verbs:\n{verbs}\n\nenvironment:\n{variables}\n\nexample:\n  pagoda run smollm2 'Name a river.'\n\n"
        "`pagoda VERB --help` tells more about one verb.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version and exit")
    return parser


class _PrintVersion(argparse.Action):
    """Looks the version up only when asked: the look-up is slower than all the rest of `--help`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"pagoda {version('pagoda')}")
        except PackageNotFoundError:
            print("pagoda, run from a source folder without being installed")
        parser.exit()


def _refuse_verb(parser: argparse.ArgumentParser, word: str) -> NoReturn:
    import difflib

    longer = [verb.name for verb in VERBS if verb.name.startswith(f"{word} ")]
    if longer:
        parser.error(f"{word} needs one more word: {', '.join(longer)}")
    close = difflib.get_close_matches(word, [verb.name for verb in VERBS], n=1)
    hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(verb.name for verb in VERBS)}"
    parser.error(f"there is no verb {word!r}; {hint}")


if __name__ == "__main__":
    sys.exit(main())
