"""What a caller asks for, once it is token ids."""

from __future__ import annotations

from typing import Literal

import msgspec

from pagoda.core.sampling_params import SamplingParams

FinishReason = Literal["stop", "length", "abort", "error"]
Task = Literal["generate", "embed", "score"]
Pooling = Literal["mean", "last"]
"""What becomes one vector: the mean of all tokens' hidden states, or the last one's."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request for the engine. Whoever makes it has checked the text; the engine checks sizes."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    task: Task = "generate"
    pooling: Pooling = "mean"
    """For the task embed."""
    priority: int = 0
    """Under the priority policy a smaller number runs sooner."""
    adapter: str = ""
    cache_salt: str = ""
    """Only requests with the same salt share cached prefixes."""
    media_digests: tuple[bytes, ...] = ()
