from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pagoda.cli.main import main
from tests.fakes.openai_server import FakeOpenAI

SMALL = ("--input-len", "4", "--output-len", "3", "--warmup", "1", "--quiet")


def test_a_run_prints_and_writes_its_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--json", str(tmp_path / "out.json"), "--html", str(tmp_path / "out.html"))
    with FakeOpenAI(first_seconds=0.02, cached_tokens=1).serve() as server:
        code = main(["bench", "serve", server.url, *SMALL, "--num-requests", "8", "--slo", "ttft=30", "e2e=60", *files])
    assert code == 0
    text = capsys.readouterr().out
    for words in ("8 answered", "24 tokens", "first token", "between tokens", "whole answer", "100.0%", "8 cached"):
        assert words in text
    record = json.loads((tmp_path / "out.json").read_text())
    measures = record["levels"][0]["measures"]
    assert (measures["num_ok"], measures["num_output_tokens"], record["model"]) == (8, 24, "fake")
    assert measures["ttft"]["p50"] >= 0.02
    assert "<svg" in (tmp_path / "out.html").read_text()


def test_a_sweep_prints_a_line_a_level(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeOpenAI(first_seconds=0.02).serve() as server:
        assert main(["bench", "serve", server.url, *SMALL, "--sweep", "concurrency=1,2,4", "--duration", "0.3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["concurrency", "tokens/s"]
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "4"]
    assert lines[-1].startswith("saturation: ")


def test_a_trace_can_be_recorded_and_played_again(tmp_path: Path) -> None:
    trace = str(tmp_path / "trace.jsonl")
    with FakeOpenAI().serve() as server:
        assert main(["bench", "serve", server.url, *SMALL, "--num-requests", "5", "--record-trace", trace]) == 0
        recorded = [body["prompt"] for body in server.bodies[1:]]
        server.bodies.clear()
        assert main(["bench", "serve", server.url, "--trace", trace, "--speed", "10", "--warmup", "0", "--quiet"]) == 0
    assert sorted(body["prompt"] for body in server.bodies) == sorted(recorded)


def test_fixed_workloads_and_conversations_are_sent() -> None:
    with FakeOpenAI().serve() as server:
        assert main(["bench", "serve", server.url, "--workload", "single", "--warmup", "0", "--quiet"]) == 0
        [body] = server.bodies
        assert len(body["prompt"]) == 128 and body["max_tokens"] == 256 and body["ignore_eos"] is True
        server.bodies.clear()
        turns = ("--endpoint", "chat", "--num-turns", "2", "--num-requests", "1", "--warmup", "0", "--no-ignore-eos")
        assert main(["bench", "serve", server.url, *SMALL, *turns]) == 0
    assert [len(body["messages"]) for body in server.bodies] == [1, 3]
    assert "ignore_eos" not in server.bodies[0]


def test_errors_are_told_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeOpenAI(status=503).serve() as server:
        assert main(["bench", "serve", server.url, *SMALL, "--num-requests", "3"]) == 1
    assert "failed: 3 x HTTP 503 (no room)" in capsys.readouterr().out


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeOpenAI().serve() as server:
        pass
    assert main(["bench", "serve", server.url]) == 1
    assert f"pagoda: error: no server answers at {server.url}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--rate", "1", "--concurrency", "2"], "--rate"),
        (["--sweep", "concurrency=1,2", "--rate", "1"], "--sweep"),
        (["--sweep", "concurrency=1,2", "--workload", "seed"], "--sweep"),
        (["--input-len", "wide"], "--input-len"),
        (["--endpoint", "chat", "--prompts", "ids"], "--prompts"),
        (["--endpoint", "chat", "--workload", "nano"], "--workload"),
        (["--slo", "speed=3"], "--slo"),
        (["--body", "[]"], "--body"),
        (["--body", "{"], "--body"),
        (["--timeout", "0"], "--timeout"),
        (["--speed", "0"], "--speed"),
        (["--html", "/no/such/folder/x.html"], "--html"),
        (["--trace", "/no/such/file"], "--trace"),
    ],
)
def test_nonsense_is_refused_before_anything_is_sent(
    options: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "serve", "http://127.0.0.1:9", *options]) == 1
    assert f"pagoda: error: {field}: " in capsys.readouterr().err


def test_bench_alone_names_what_can_be_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["bench"])
    assert caught.value.code == 2
    assert "bench serve" in capsys.readouterr().err


def test_ctrl_c_ends_with_a_report_of_what_there_is(tmp_path: Path) -> None:
    with FakeOpenAI(gap_seconds=0.01).serve() as server:
        command = [sys.executable, "-m", "pagoda", "bench", "serve", server.url, "--output-len", "5000"]
        process = subprocess.Popen(
            [*command, "--input-len", "4", "--warmup", "0", "--json", str(tmp_path / "out.json")],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ},
        )
        deadline = time.monotonic() + 30
        while not server.bodies and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted: " in text
    [level] = json.loads((tmp_path / "out.json").read_text())["levels"]
    assert level["measures"]["was_interrupted"] and level["measures"]["output_tokens_per_second"] > 0
