from __future__ import annotations

import pytest

from pagoda.core.errors import ModelFileError
from pagoda.models import supported_architectures
from pagoda.models.registry import FAMILIES, find_family


@pytest.mark.parametrize(
    ("kind", "config", "name"),
    [
        ("huggingface", {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}, "mistral"),
        ("huggingface", {"model_type": "gemma3_text"}, "gemma3"),
        ("huggingface", {"architectures": ["Qwen2ForCausalLM"], "model_type": "llama"}, "qwen2"),
        ("gguf", {"general.architecture": "llama"}, "llama"),
        ("gguf", {"general.architecture": "qwen3"}, "qwen3"),
    ],
)
def test_find_family(kind, config, name):
    assert find_family(kind, config).name == name


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("huggingface", {"architectures": ["BertModel"], "model_type": "llama"}),
        ("huggingface", {"model_type": "mamba"}),
        ("gguf", {"general.architecture": "mistral"}),
        ("gguf", {"general.architecture": "falcon"}),
    ],
)
def test_an_unknown_architecture_is_answered_with_those_supported(kind, config):
    with pytest.raises(ModelFileError, match="not supported; supported: ") as error:
        find_family(kind, config)
    for name in supported_architectures(kind):
        assert name in str(error.value)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("huggingface", {}),
        ("huggingface", {"architectures": [], "model_type": "llama"}),
        ("huggingface", {"architectures": [7]}),
        ("huggingface", {"architectures": {"a": 1}}),
        ("gguf", {}),
        ("gguf", {"general.architecture": 3}),
    ],
)
def test_a_file_that_does_not_name_its_architecture_is_refused(kind, config):
    with pytest.raises(ModelFileError, match="architecture"):
        find_family(kind, config)


def test_no_two_families_claim_one_name():
    for kind in ("huggingface", "gguf"):
        names = supported_architectures(kind)
        assert len(set(names)) == len(names)
    model_types = [family.model_type for family in FAMILIES]
    assert len(set(model_types)) == len(model_types)
