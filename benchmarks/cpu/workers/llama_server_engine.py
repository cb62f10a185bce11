"""llama-server's side: the server as it comes, and 32 clients that read their streams over HTTP."""

from __future__ import annotations

import re
from pathlib import Path

from served import Dialect, Server, free_port
from tasks import TASKS, Setup, peak_mebibytes, serve

SERVER = Path(__file__).parents[2] / "results" / "peers" / "llama-server-build" / "bin" / "llama-server"
DIALECT = Dialect(
    ready_path="/health",
    path="/completion",
    body={"temperature": 0, "ignore_eos": True, "cache_prompt": False},
    length_field="n_predict",
    token_mark=b'"stop":false',
    total=re.compile(rb'"tokens_predicted":(\d+)'),
)


def command(setup: Setup, port: int) -> list[str]:
    longest = max(task.num_context for task in TASKS.values() if task.num_requests <= setup.num_streams)
    context = setup.num_streams * longest if setup.num_streams == 1 else setup.num_streams * 272
    threads = str(setup.num_threads)
    words = [str(SERVER), "-m", setup.model, "--host", "127.0.0.1", "--port", str(port), "-t", threads]
    words += ["-tb", threads, "-np", str(setup.num_streams), "-c", str(context), "--no-webui", "--cache-ram", "0"]
    if setup.cache_type:
        words += ["-ctk", setup.cache_type, "-ctv", setup.cache_type]
    return words


def main() -> None:
    port = free_port()
    server = Server(command(Setup.from_command_line(), port), port, DIALECT)
    try:
        serve(server.run, lambda: peak_mebibytes(server.process.pid))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
