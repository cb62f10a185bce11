"""What models recommend to draw with, as their files say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pagoda.core.errors import ModelFileError
from pagoda.core.sampling_defaults import SamplingDefaults
from pagoda.weights.sampling_defaults import FILE_NAME, GGUF_NAMES, recommended_by
from tests.fakes.lookup_model import write_lookup_model
from tests.kernels.cpu.families import make_family


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    make_family("llama", folder)
    return folder


def said(folder: Path, content: Any) -> SamplingDefaults:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / FILE_NAME).write_text(text, encoding="utf-8")
    return recommended_by(folder)


def test_a_folder(saved: Path):
    found = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05, "do_sample": True}
    assert said(saved, found | {"eos_token_id": [1, 2], "transformers_version": "5"}) == SamplingDefaults(
        temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05
    )


def test_a_single_file_of_weights_has_the_file_beside_it(saved: Path):
    said(saved, {"temperature": 0.3})
    assert recommended_by(saved / "model.safetensors").temperature == 0.3


def test_what_stands_there_as_null_is_not_said(saved: Path):
    assert said(saved, {"temperature": None, "top_k": 5}) == SamplingDefaults(top_k=5)


def test_without_the_file_nothing_is_recommended(saved: Path):
    (saved / FILE_NAME).unlink(missing_ok=True)
    assert recommended_by(saved) == SamplingDefaults()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"temperature": "hot"}, "generation_config.json: temperature: 'hot' is not a finite number"),
        ({"top_p": 1.5}, "generation_config.json: top_p: 1.5 is out of range"),
        ({"top_k": [5]}, "generation_config.json: top_k: [5] is not an integer"),
        ([], "generation_config.json: expected a JSON object"),
        ('{"top_k": 1, "top_k": 2}', "generation_config.json: not valid JSON (the key 'top_k' stands twice)"),
    ],
)
def test_a_bad_file_is_refused_with_a_way_out(saved: Path, content: Any, message: str):
    with pytest.raises(ModelFileError) as caught:
        said(saved, content)
    assert str(caught.value).startswith(message)
    if isinstance(content, dict):
        assert "generation_config='none'" in str(caught.value)


def test_a_link_out_of_the_folder_is_not_followed(saved: Path, tmp_path: Path):
    (tmp_path / "else.json").write_text('{"temperature": 0.1}')
    (saved / FILE_NAME).unlink(missing_ok=True)
    (saved / FILE_NAME).symlink_to(tmp_path / "else.json")
    try:
        with pytest.raises(ModelFileError, match="leads out of the folder"):
            recommended_by(saved)
    finally:
        (saved / FILE_NAME).unlink()


def test_gguf(tmp_path: Path):
    names = {name.removeprefix("general.sampling.") for name in GGUF_NAMES.values()}
    values = {"temp": 0.6, "top_p": 0.9, "top_k": 30, "min_p": 0.05, "penalty_repeat": 1.1}
    assert set(values) == names
    found = recommended_by(write_lookup_model(tmp_path / "m.gguf", recommends=values))
    assert found == SamplingDefaults(temperature=0.6, top_p=0.9, top_k=30, min_p=0.05, repetition_penalty=1.1)
    assert recommended_by(write_lookup_model(tmp_path / "plain.gguf")) == SamplingDefaults()


def test_a_bad_value_in_gguf_is_named_as_it_stands_there(tmp_path: Path):
    path = write_lookup_model(tmp_path / "m.gguf", recommends={"temp": -3.0})
    with pytest.raises(ModelFileError, match=r"m\.gguf: general\.sampling\.temp: -3\.0 is out of range"):
        recommended_by(path)
