"""`pagoda pull`: fetch a model into the store, or check one that is there."""

from __future__ import annotations

import argparse

EXAMPLES = """\
  pagoda pull smollm2
  pagoda pull gemma3-270m
  pagoda pull hf:Qwen/Qwen3-0.6B
  pagoda pull hf:Qwen/Qwen3-0.6B-GGUF:Qwen3-0.6B-Q8_0.gguf
  pagoda pull --verify smollm2
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="NAME", help="a known name, hf:owner/name or hf:owner/name:FILE.gguf")
    parser.add_argument(
        "--verify", action="store_true", help="if it is here already, hash it again and replace it if it is damaged"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def main(args: argparse.Namespace) -> int:
    from pagoda.cli.formatting import format_bytes
    from pagoda.cli.progress import show_progress
    from pagoda.core.errors import ModelFileError
    from pagoda.weights.store import ModelStore

    store = ModelStore()
    with show_progress(quiet=args.quiet) as progress:
        try:
            manifest = store.get(args.model)
            if manifest is not None and args.verify:
                store.verify(manifest, progress)
            news = "is here already" + (", intact" if args.verify else "")
        except ModelFileError:
            if not args.verify:
                raise
            manifest = store.pull(args.model, progress, replace=True)
            news = "was damaged and is replaced"
        if manifest is None:
            manifest = store.pull(args.model, progress)
            news = "is ready"
    print(f"{manifest.name} {news}: {store.path(manifest)} ({format_bytes(manifest.num_bytes)})")
    return 0
