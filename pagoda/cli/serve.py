"""`pagoda serve`: a model behind OpenAI's API."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

import msgspec

from pagoda.cli.serve_settings import SECTIONS, ServeSettings
from pagoda.server.config import ProcessSettings

EXAMPLES = """\
  pagoda serve
  pagoda serve smollm2 --port 9000
  PAGODA_API_KEY=a-long-secret pagoda serve smollm2 --host 0.0.0.0
  pagoda serve --max-num-seqs 16 --print-config > server.toml
  pagoda serve --config server.toml
  curl localhost:8000/v1/chat/completions -H "Content-Type: application/json" \\
       -d '{"messages": [{"role": "user", "content": "Name a river."}]}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pagoda serve [MODEL] [options]"
    parser.description = (
        "Answer requests over HTTP, as OpenAI does. Every option is also a line of the\n"
        "file given by --config, in the table that its group names, and a variable:\n"
        "--port is PAGODA_PORT. The command line counts most, then the environment, then\n"
        "the file."
    )
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a name, a .gguf file or a model folder (default: smollm2)"
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings")
    parser.add_argument(
        "--print-config", action="store_true", help="print all settings, where each comes from, and leave"
    )
    parser.add_argument("--served-model-name", metavar="TEXT", help="what clients call the model (default: its name)")
    parser.add_argument("--api-keys-file", metavar="FILE", help="TOML file of API keys and their limits")
    for name, section in SECTIONS.items():
        section.options.add_to(parser.add_argument_group(f"{section.title} ([{name}])"))


def main(args: argparse.Namespace) -> int:
    found = ServeSettings.read(args)
    settings = found.process_settings()
    if args.print_config:
        print("\n".join(found.as_toml()))
        return 0
    from pagoda.cli.progress import show_progress
    from pagoda.weights.store import ensure_model

    with show_progress() as progress:
        path = ensure_model(settings.engine.model, progress)
    print(f"pagoda: serving {settings.engine.model}", file=sys.stderr)
    become_supervisor(msgspec.structs.replace(settings, model_path=str(path)))


def become_supervisor(settings: ProcessSettings) -> NoReturn:
    """In this process, without what was needed to get here: it stays for as long as the server, and does little."""
    sys.stdout.flush()
    sys.stderr.flush()
    argument = msgspec.json.encode(settings).decode()
    os.execv(sys.executable, [sys.executable, "-m", "pagoda.server.supervisor", argument])
