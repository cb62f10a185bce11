from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pagoda.bench import device
from pagoda.bench.device import Device
from pagoda.cli.main import main
from pagoda.engine.loop import EngineLoop
from pagoda.kernels.peaks import Peaks
from tests.fakes.config_folder import write_config

PEAKS = Peaks(1e9, {"f32": 1e9, "int8": 4e9})


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A model of random weights, on a device that need not be measured."""
    monkeypatch.setattr(device, "measure_device", lambda config: Device("a machine", PEAKS))
    model = str(write_config(tmp_path / "model"))
    yield [model, "--load-format", "dummy", "--num-threads", "1", "--max-num-seqs", "4", "--quiet"]


def test_a_run_prints_and_writes_its_figures(
    tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    work = ("--num-prompts", "5", "--input-len", "8", "--output-len", "4", "--repeats", "2", "--json", str(file))
    assert main(["bench", "throughput", *tiny, *work]) == 0
    text = capsys.readouterr().out
    for words in (
        "a machine: random, 5 requests of 8 tokens in and 4 out",
        "20 tokens",
        "60 tokens",
        "5 answered",
        "us of it the host's",
        "1.0 GB/s read, 1 GFLOP/s in f32",
        "bound by",
        "prompts",
        "decode",
    ):
        assert words in text
    assert "device waits" not in text, "a CPU has no clock of its own"
    record = json.loads(file.read_text())
    assert (record["kind"], record["num_output_tokens"], len(record["runs"])) == ("throughput", 20, 2)
    assert record["settings"]["load_format"] == "dummy" and record["device"]["peaks"]["bytes_per_second"] == 1e9
    assert [bound["name"] for bound in record["roofline"]] == ["prompts", "decode", "all"]
    assert record["steps"]["device_wait_share"] is None


def test_a_fixed_workload_is_taken_in_part(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    work = ("--workload", "ttft1k", "--repeats", "1", "--max-model-len", "512")
    assert main(["bench", "throughput", *tiny, *work]) == 1
    assert "max_model_len: the longest request has 1025 tokens" in capsys.readouterr().err
    work = ("--workload", "decode256", "--num-prompts", "1", "--repeats", "1", "--max-model-len", "512")
    assert main(["bench", "throughput", *tiny, *work]) == 1, "128 in and 512 out do not fit either"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--workload", "seed", "--input-len", "4"], "--input-len"),
        (["--num-prompts", "0"], "--num-prompts"),
        (["--repeats", "-1"], "--repeats"),
        (["--json", "/no/such/folder/x.json"], "--json"),
        (["--max-num-seqs", "0"], "max_num_seqs"),
        (["--dtype", "bfloat16"], "dtype"),
    ],
)
def test_nonsense_is_refused_before_anything_is_loaded(
    options: list[str], field: str, tiny: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "throughput", *tiny, *options]) == 1
    assert f"pagoda: error: {field}: " in capsys.readouterr().err


def test_a_length_that_is_none_is_refused(tiny: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "throughput", *tiny, "--input-len", "wide"]) == 1
    assert "--input-len: 'wide' is not understood" in capsys.readouterr().err


def test_a_folder_without_a_configuration(tiny: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "throughput", str(tmp_path), *tiny[1:]]) == 1
    assert "has no config.json" in capsys.readouterr().err


@pytest.mark.parametrize("last_turn", [40, 3])
def test_ctrl_c_ends_with_what_there_is(
    last_turn: int,
    tiny: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the run itself; in the warm-up before it there is nothing to tell."""
    real, turns = EngineLoop.step, iter(range(10_000))

    def step(loop: EngineLoop, *meanwhile: Any) -> object:
        if next(turns) == last_turn:
            os.kill(os.getpid(), signal.SIGINT)
        return real(loop, *meanwhile)

    monkeypatch.setattr(EngineLoop, "step", step)
    file = tmp_path / "out.json"
    work = ("--num-prompts", "2", "--input-len", "4", "--output-len", "300", "--json", str(file))
    assert main(["bench", "throughput", *tiny, *work]) == 130
    text = capsys.readouterr().out
    if last_turn == 3:
        assert text == ""
        return
    assert "interrupted: the figures are of what there was until then" in text and "0 answered" in text
    record = json.loads(file.read_text())
    assert record["was_interrupted"] and 0 < record["num_output_tokens"] < 100
