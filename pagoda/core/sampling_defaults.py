"""What a model's maker recommends to draw with: it counts where a request says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pagoda.core.sampling_params import SamplingParams


class SamplingDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields of `SamplingParams`; None where nothing is recommended. A bad value raises `InvalidRequest`."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None

    def __post_init__(self) -> None:
        self.params()

    def known(self) -> dict[str, Any]:
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}

    def beneath(self, said: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.known(), **said}

    def params(self) -> SamplingParams:
        return SamplingParams(**self.known())

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" for name, value in self.known().items())
