from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.bench import device
from pagoda.bench.device import Device
from pagoda.cli.bench.latency import with_room_for
from pagoda.cli.main import main
from pagoda.core.errors import InvalidRequest
from pagoda.kernels.peaks import Peaks
from tests.fakes.config_folder import write_config


def test_a_batch_prints_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "measure_device", lambda config: Device("a machine", Peaks(1e9, {"f32": 1e9})))
    file, model = tmp_path / "out.json", write_config(tmp_path / "model")
    batch = ("--batch-size", "2", "--input-len", "8", "--output-len", "4", "--repeats", "3", "--warmup", "1")
    settings = ("--load-format", "dummy", "--num-threads", "1", "--quiet", "--json", str(file))
    assert main(["bench", "latency", str(model), *batch, *settings]) == 0
    text = capsys.readouterr().out
    assert "2 at once, 8 tokens in and 4 out, 3 runs" in text
    for words in ("first token", "each after it", "whole batch", "p90", "decode", "us of it the host's"):
        assert words in text
    record = json.loads(file.read_text())
    assert (record["kind"], record["num_runs"], record["batch"]["batch_size"]) == ("latency", 3, 2)
    assert 0 < record["first_token"]["p50"] <= record["first_token"]["p99"]


def test_the_batch_has_room() -> None:
    assert with_room_for(2, {}) == {"device": "cpu", "max_num_seqs": 64, "max_num_batched_tokens": 512}
    assert with_room_for(600, {}) == {"device": "cpu", "max_num_seqs": 600, "max_num_batched_tokens": 600}
    assert with_room_for(3, {"max_num_seqs": 3, "block_size": 16})["max_num_seqs"] == 3
    with pytest.raises(InvalidRequest, match="--batch-size: 5 is more than --max-num-seqs 4"):
        with_room_for(5, {"max_num_seqs": 4})


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "latency", "--output-len", "0"]) == 1
    assert "pagoda: error: --output-len: must be at least 1, not 0" in capsys.readouterr().err
