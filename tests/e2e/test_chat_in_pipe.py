"""`pagoda run` without a terminal: clean answers on stdout, odd bytes, readers that leave, Ctrl-C, no input at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.lookup_model import SAYING, write_lookup_model

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    model = write_lookup_model(tmp_path_factory.mktemp("models") / "lookup.gguf", context=100_000)
    return [sys.executable, "-m", "pagoda", "run", str(model), "--temperature", "0"]


def test_only_answers_are_on_stdout(command: list[str]) -> None:
    run = subprocess.run([*command, "--verbose"], cwd=REPOSITORY, input="one\ntwo\n", capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, f"{SAYING}\n" * 2)
    assert run.stderr.count("tokens/s") == 2


def test_bytes_that_are_no_text_end_nothing(command: list[str]) -> None:
    run = subprocess.run(command, cwd=REPOSITORY, input=b"caf\xe9\n\xff\xfe\n", capture_output=True)
    assert (run.returncode, run.stdout.decode(), run.stderr) == (0, f"{SAYING}\n" * 2, b"")


def test_no_input_is_no_error(command: list[str]) -> None:
    run = subprocess.run(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")
    closed = f"exec {' '.join(command)} <&-"
    run = subprocess.run(["sh", "-c", closed], cwd=REPOSITORY, capture_output=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, b"", b"")


def test_a_reader_that_leaves_ends_it_quietly(command: list[str]) -> None:
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline().decode() == f"{SAYING}\n"
        process.stdout.close()
        process.stdin.write(b"two\n")
        process.stdin.close()
        assert (process.stderr.read(), process.wait()) == (b"", 141)


def test_ctrl_c_ends_a_single_answer_with_what_was_said(tmp_path: Path) -> None:
    model = write_lookup_model(tmp_path / "endless.gguf", context=100_000, ends=False)
    log = tmp_path / "run.log"
    words = ["run", str(model), "--temperature", "0", "--decision-log", str(log), "go"]
    with subprocess.Popen(
        [sys.executable, "-m", "pagoda", *words], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        first = os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        said = (first + process.stdout.read()).decode()
        assert (process.stderr.read(), process.wait()) == (b"", 130)
    assert said.startswith(SAYING[0]) and said.endswith("\n")
    assert log.stat().st_size > 0
