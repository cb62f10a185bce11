"""From the name an architecture goes by, in config.json or in GGUF metadata, to the family that knows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagoda.core.errors import ModelFileError
from pagoda.models import gemma3, llama, mistral, qwen2, qwen3
from pagoda.models.config_reader import shown
from pagoda.models.family import Family

FAMILIES: tuple[Family, ...] = (llama.FAMILY, mistral.FAMILY, qwen2.FAMILY, qwen3.FAMILY, gemma3.FAMILY)


def supported_architectures(kind: str) -> tuple[str, ...]:
    """The names known for files of one kind: "huggingface" or "gguf"."""
    if kind == "gguf":
        return tuple(family.gguf_architecture for family in FAMILIES if family.gguf_architecture is not None)
    return tuple(name for family in FAMILIES for name in family.architectures)


def find_family(kind: str, config: Mapping[str, Any]) -> Family:
    name = gguf_architecture(config) if kind == "gguf" else huggingface_architecture(config)
    for family in FAMILIES:
        own = (family.gguf_architecture,) if kind == "gguf" else (*family.architectures, family.model_type)
        if name in own:
            return family
    supported = ", ".join(supported_architectures(kind))
    raise ModelFileError(f"architecture {shown(name)} is not supported; supported: {supported}")


def gguf_architecture(config: Mapping[str, Any]) -> str:
    name = config.get("general.architecture")
    if not isinstance(name, str):
        raise ModelFileError("GGUF metadata: general.architecture is missing or not a string")
    return name


def huggingface_architecture(config: Mapping[str, Any]) -> str:
    """The one entry of `architectures`, or `model_type` where a configuration has none."""
    architectures = config.get("architectures")
    name = config.get("model_type") if architectures is None else architectures
    if isinstance(name, list) and len(name) == 1:
        name = name[0]
    if not isinstance(name, str):
        raise ModelFileError("config.json: architectures must be a list of one name, or model_type a name")
    return name
