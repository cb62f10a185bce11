"""`pagoda show`: manifest and header of a stored model, of a bare file; verification; licence texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pagoda.cli.main import main
from pagoda.cli.show import _plain_text
from tests.fakes.lookup_model import write_lookup_model


@pytest.fixture
def pulled(home: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    main(["pull", "--quiet", "tiny"])
    capsys.readouterr()
    return home / "models" / "tiny" / "model.gguf"


def test_a_stored_model(pulled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "tiny"]) == 0
    facts = dict(line.split(":", 1) for line in capsys.readouterr().out.splitlines())
    facts = {label: value.strip() for label, value in facts.items()}
    assert (facts["name"], facts["path"]) == ("tiny", str(pulled))
    assert facts["licence"] == "test licence (its text: pagoda show --licence tiny)"
    assert (facts["architecture"], facts["layers"], facts["context"]) == ("llama", "2", "64")
    assert (facts["vocabulary"], facts["tensors"]) == ("3", "F32 x1")
    assert "heads" not in facts  # the header does not tell


def test_json(pulled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--json", "tiny"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["manifest"]["name"] == "tiny"
    assert record["header"]["num_tensors"] == {"F32": 1}


def test_a_file_without_manifest(pulled: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["show", str(tmp_path / "tiny.gguf")]) == 0
    out = capsys.readouterr().out
    assert "architecture:  llama" in out and "licence" not in out
    assert main(["show", "--verify", str(tmp_path / "tiny.gguf")]) == 1
    assert "was not pulled" in capsys.readouterr().err


def test_how_the_model_wants_to_be_drawn_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write_lookup_model(tmp_path / "m.gguf", recommends={"temp": 0.6, "top_k": 20}))
    assert main(["show", path]) == 0
    assert "draws with:    temperature 0.6, top_k 20\n" in capsys.readouterr().out
    assert main(["show", "--json", path]) == 0
    assert json.loads(capsys.readouterr().out)["sampling_defaults"]["top_k"] == 20
    bad = str(write_lookup_model(tmp_path / "bad.gguf", recommends={"temp": 600.0}))
    assert main(["show", bad]) == 0  # the rest is told all the same
    out = capsys.readouterr().out
    assert "architecture:  llama" in out and "draws with:    bad.gguf: general.sampling.temp: 600.0 is out of" in out


def test_verify(pulled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--verify", "tiny"]) == 0
    assert "every file is as it was pulled" in capsys.readouterr().out
    content = bytearray(pulled.read_bytes())
    content[-1] ^= 1
    pulled.write_bytes(content)
    assert main(["show", "--verify", "tiny"]) == 1
    assert "fix: pagoda pull --verify tiny" in capsys.readouterr().err


def test_licence_texts(pulled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "--licence", "tiny"]) == 0
    assert capsys.readouterr().out == "Do as you like.\n"


def test_pages_are_printed_as_text() -> None:
    page = "<html><head><title>x</title></head><body><script>var a</script><h1>Terms</h1><p>One &amp;\n two</p></body>"
    assert _plain_text(page) == "Terms\nOne &\ntwo"
    assert _plain_text("<p>menu</p><article><p>The terms</p></article><p>feedback</p>") == "The terms"


def test_not_pulled(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "tiny"]) == 1
    assert capsys.readouterr().err == "pagoda: error: tiny is not pulled yet; fix: pagoda pull tiny\n"
