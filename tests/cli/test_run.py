"""`pagoda run` in this process, on a model that looks letters up: answers, options, the log, faults in one line."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from pathlib import Path

import pytest

from pagoda.cli.main import main
from pagoda.cli.run import SAMPLING_DEFAULTS, _sampling
from pagoda.core.sampling_params import SamplingParams
from pagoda.weights.registry import DEFAULT_MODEL
from tests.fakes.lookup_model import SAYING, write_lookup_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_lookup_model(tmp_path_factory.mktemp("models") / "lookup.gguf"))


def test_a_prompt_is_answered_and_the_program_ends(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", model, "--temperature", "0", "Say", "it"]) == 0
    assert capsys.readouterr() == (f"{SAYING}\n", "")


def test_options_may_stand_anywhere(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--max-tokens", "2", model, "--temperature", "0", "Say it"]) == 0
    assert capsys.readouterr().out == f"{SAYING[:2]}\n"


def test_lines_of_a_pipe_are_turns_with_history(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('one\n\n"""two\nthree"""\n'))
    assert main(["run", model, "--temperature", "0", "--verbose", "--first", "zero"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{SAYING}\n" * 3
    prompts = [int(line.partition("prompt ")[2].split()[0]) for line in err.splitlines()]
    assert len(prompts) == 3 and prompts == sorted(prompts) and prompts[0] < prompts[1] < prompts[2]


def test_the_decision_log_is_written_on_leaving(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "run.log"
    assert main(["run", model, "--decision-log", str(log), "Say it"]) == 0
    capsys.readouterr()
    assert main(["why", str(log), "0"]) == 0
    assert "finished" in capsys.readouterr().out


def test_sampling_options_reach_the_answer(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    stopping = ["--stop", "w", "--stop", ","]
    assert main(["run", model, "--temperature", "0", *stopping, "Say it"]) == 0
    assert capsys.readouterr().out == f"{SAYING.partition(',')[0]}\n"


def test_a_base_model_is_told_of_and_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write_lookup_model(tmp_path / "base.gguf", has_template=False)
    assert main(["run", str(base), "--temperature", "0", "Say it"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{SAYING}\n"
    assert "has no chat template: each text is completed by itself" in err and err.count("\n") == 1


def test_a_prompt_longer_than_the_context_is_one_line(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", model, "--max-model-len", "32", "x" * 100]) == 1
    err = capsys.readouterr().err
    assert "max_model_len is 32" in err and err.count("\n") == 1
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\nthree\n"))
    assert main(["run", model, "--max-model-len", "40", "--temperature", "0"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{SAYING}\n")
    assert "/clear forgets the conversation" in err


def test_the_models_own_way_of_drawing_goes_before_the_chats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_lookup_model(tmp_path / "wild.gguf", recommends={"temp": 50.0}))

    def answer(*options: str) -> str:
        assert main(["run", model, "--max-tokens", "9", "--seed", "1", *options, "Say it"]) == 0
        return capsys.readouterr().out.rstrip("\n")

    assert answer() != SAYING
    assert answer("--temperature", "0") == answer("--generation-config", "none") == SAYING


def test_the_chat_is_bolder_than_a_bare_request_where_nothing_is_recommended() -> None:
    args = argparse.Namespace(**dict.fromkeys(("temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "stop")))
    assert _sampling(args) == SamplingParams(temperature=0.8, top_p=0.9, top_k=40, max_tokens=None)
    assert _sampling(args, {"temperature": 0.6, "min_p": 0.1}) == SamplingParams(
        temperature=0.6, top_p=0.9, top_k=40, min_p=0.1, max_tokens=None
    )
    args.temperature = 0.2
    assert _sampling(args, {"temperature": 0.6}).temperature == 0.2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["./nonesuch.gguf"], 1, "there is no file or folder nonesuch.gguf"),
        (["nonesuch"], 1, "no model is called 'nonesuch'"),
        ([__file__], 1, "is not a GGUF file"),
        (["What is this?"], 1, "is no model name"),
        (["m", "--temperature", "500"], 1, "temperature: 500.0 is out of range"),
        (["m", "--stop", ""], 1, "stop: a string of 0 bytes"),
        (["m", "--block-size", "0"], 1, "block_size: must be a whole number from 1 to 1024"),
        (["m", "--num-pages", "0"], 1, "num_pages: must be"),
        (["m", "--decision-log", "/nonesuch/log"], 1, "--decision-log: there is no folder /nonesuch"),
        (["m", "p", "--first", "q"], 1, "--first: cannot go with PROMPT"),
        (["m", "--temprature", "1"], 2, "unrecognized arguments: --temprature"),
        (["m", "--device", "abacus"], 2, "argument --device: invalid choice"),
        (["m", "--top-k", "many"], 2, "argument --top-k: invalid int value"),
    ],
)
def test_faults_at_the_start_are_one_line(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAGODA_HOME", str(tmp_path))
    try:
        found = main(["run", *arguments])
    except SystemExit as left:
        found = left.code  # type: ignore[assignment]
    out, err = capsys.readouterr()
    assert (found, out) == (code, "")
    assert message in err and err.count("\n") == 1


def test_a_damaged_model_is_one_line(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(Path(model).read_bytes()[:20_000])
    assert main(["run", str(cut), "hi"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("pagoda: error: ") and err.count("\n") == 1


def test_help_tells_the_defaults_that_apply(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for name in ("temperature", "top_p", "top_k"):
        assert f"(default: the model's, else {SAMPLING_DEFAULTS[name]})" in text
    assert f"(default: {DEFAULT_MODEL})" in text
    assert "sequences that run at once (default: 1)" in text
    assert SamplingParams(**SAMPLING_DEFAULTS).max_tokens is None


def test_help_and_usage_errors_load_no_engine() -> None:
    probe = (
        "import sys; from pagoda.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'rich', 'tokenizers', 'pagoda.engine'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    for arguments in (["run", "--help"], ["run", "--nonsense"], ["run", "m", "--temperature", "-1"]):
        answer = subprocess.run([sys.executable, "-c", probe, *arguments], cwd=ROOT, capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
