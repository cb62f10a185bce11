"""Pagoda's own server beside llama-server: the same clients, the same requests."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from served import Dialect, Server, free_port
from tasks import Setup, peak_mebibytes, serve

DIALECT = Dialect(
    ready_path="/ready",
    path="/v1/completions",
    body={"temperature": 0, "ignore_eos": True, "stream_options": {"include_usage": True}},
    length_field="max_tokens",
    token_mark=b'"finish_reason":null',
    total=re.compile(rb'"completion_tokens":(\d+)'),
)


def command(setup: Setup, port: int) -> list[str]:
    words = [sys.executable, "-m", "pagoda.cli.main", "serve", setup.model, "--port", str(port)]
    words += ["--num-threads", str(setup.num_threads), "--max-num-seqs", str(setup.num_streams)]
    return [*words, "--max-model-len", "1024", "--no-enable-prefix-caching", "--log-level", "warning"]


def all_processes(root: int) -> list[int]:
    """It and those it started."""
    children = Path(f"/proc/{root}/task/{root}/children").read_text().split()
    return [root, *(found for child in children for found in all_processes(int(child)))]


def main() -> None:
    port = free_port()
    server = Server(command(Setup.from_command_line(), port), port, DIALECT)
    try:
        serve(server.run, lambda: sum(map(peak_mebibytes, all_processes(server.process.pid))))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
