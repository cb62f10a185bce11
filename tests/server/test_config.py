"""What clients call the model that is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from pagoda.core.config import EngineConfig
from pagoda.server.config import ProcessSettings, ServerConfig


def name_of(model: object, served: str | None = None) -> str:
    server = ServerConfig(served_model_name=served)
    return ProcessSettings(server=server, engine=EngineConfig(model=str(model)), model_path="").model_name


def test_a_name_is_kept_as_it_was_given() -> None:
    assert name_of("smollm2") == "smollm2"
    assert name_of("hf:org/some-model") == "hf:org/some-model"
    assert name_of("smollm2", "ours") == "ours"


def test_the_place_of_a_file_or_folder_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("stories.gguf", "smollm2/model.gguf", "tiny-llama/config.json"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    assert name_of(tmp_path / "stories.gguf") == "stories"
    assert name_of(tmp_path / "smollm2" / "model.gguf") == "smollm2"
    assert name_of(tmp_path / "tiny-llama") == "tiny-llama"
    monkeypatch.chdir(tmp_path / "tiny-llama")
    assert name_of(".") == "tiny-llama"
    assert name_of("../stories.gguf", "ours") == "ours"
