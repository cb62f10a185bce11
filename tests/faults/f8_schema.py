"""F8: whatever `/openapi.json` allows or forbids, sent by schemathesis: no answer may be a 5xx or an undocumented one.

The data are wrong as often as right, with NUL bytes among them; the coverage phase tries the document's boundaries.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.goals import Goals, run_script
from tests.server.running import RunningServer

OPTIONS = ("--max-model-len", "64", "--max-num-seqs", "16")
CHECKS = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"),
    *("negative_data_rejection", "unsupported_method", "allow_header_conformance", "ignored_auth"),
)
KEY = "a-key-for-the-schema"
# What no error may show: addresses, places in the code, folders.
LEAKS = re.compile(r"0x[0-9a-f]{6,}|Traceback|File \\?\"|/(?:home|root|tmp|usr|work)/")


async def experiment(model: str, examples: int, seed: int = 0) -> Goals:
    goals = Goals(f"F8: what the schema allows and forbids, {examples} examples a route")
    running = RunningServer(model, *OPTIONS, environment={"PAGODA_API_KEY": KEY})
    with running as server, tempfile.TemporaryDirectory() as folder:
        server.wait_until_ready()
        code, output = await asyncio.to_thread(fuzz, server.url, Path(folder), examples, seed)
        statuses, leaks = read_answers(Path(folder) / "answers.json")
        is_alive = server.is_running and "engine" in server.children()
    for status, count in sorted(statuses.items()):
        goals.note(f"answers with status {status}", count)
    goals.exactly("answers with a status of 500 or more", sum(n for status, n in statuses.items() if status >= 500), 0)
    goals.exactly("answers that show something of the machine", leaks, 0)
    goals.exactly("schemathesis' exit code", code, 0)
    goals.exactly("the server still runs", is_alive, True)
    if code:
        print(output)
    return goals


def fuzz(url: str, folder: Path, examples: int, seed: int) -> tuple[int, str]:
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
        *("--header", f"Authorization: Bearer {KEY}", "--mode", "all", "--phases", "examples,coverage,fuzzing"),
        *("--checks", ",".join(CHECKS), "--max-examples", str(examples), "--seed", str(seed)),
        *("--request-timeout", "120", "--continue-on-failure", "--suppress-health-check", "all"),
        *("--report", "har", "--report-har-path", str(folder / "answers.json"), "--no-color"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=3000)
    return done.returncode, done.stdout[-20000:] + done.stderr[-2000:]


def read_answers(path: Path) -> tuple[dict[int, int], int]:
    """How many answers had which status, and how many errors show what they should not."""
    statuses: dict[int, int] = {}
    leaks = 0
    for entry in json.loads(path.read_text())["log"]["entries"]:
        answer = entry["response"]
        statuses[answer["status"]] = statuses.get(answer["status"], 0) + 1
        leaks += answer["status"] >= 400 and bool(LEAKS.search(answer["content"].get("text", "")))
    return statuses, leaks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--examples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)


if __name__ == "__main__":
    sys.exit(run_script(__doc__, experiment, add_arguments))
