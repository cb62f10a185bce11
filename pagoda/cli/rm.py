"""`pagoda rm`: remove models from the store."""

from __future__ import annotations

import argparse
import sys

EXAMPLES = """\
  pagoda rm smollm2
  pagoda rm --yes smollm2 gemma3-270m
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="NAME", nargs="+", help="a name from `pagoda list`")
    parser.add_argument("--yes", action="store_true", help="do not ask, even on a terminal")


def main(args: argparse.Namespace) -> int:
    from pagoda.cli.formatting import format_bytes
    from pagoda.weights.store import ModelStore

    store = ModelStore()
    for name in args.models:
        if not args.yes and sys.stdin.isatty() and not _confirm(name):
            print(f"{name} is kept")
            continue
        print(f"{name} is removed, {format_bytes(store.remove(name))} freed")
    return 0


def _confirm(name: str) -> bool:
    try:
        return input(f"remove {name}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
