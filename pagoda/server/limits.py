"""The one table of limits: what a single request may ask for, checked while it is read."""

from __future__ import annotations

import msgspec

from pagoda.core.errors import InvalidRequest
from pagoda.core.sampling_params import (
    MAX_LOGIT_BIAS,
    MAX_LOGPROBS,
    MAX_SEQUENCES,
    MAX_STOP_BYTES,
    MAX_STOP_STRINGS,
)
from pagoda.server.errors import bad_request

KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Each is a flag of `pagoda serve`. What the engine itself limits can be made stricter here, not looser."""

    max_body_bytes: int = 8 * MEBIBYTE
    """Largest body of a request."""
    max_header_bytes: int = 64 * KIBIBYTE
    """Largest header of a request, all lines together."""
    max_headers: int = 100
    """Most header lines."""
    max_url_bytes: int = 8 * KIBIBYTE
    """Longest URL."""
    max_header_seconds: int = 10
    """A header must have come completely after so many seconds."""
    max_body_seconds: int = 60
    """A body must have come completely so many seconds after its header."""
    max_json_depth: int = 64
    """Deepest nesting of a body."""
    max_n: int = MAX_SEQUENCES
    """Most answers to one prompt (n, best_of)."""
    max_prompts: int = 256
    """Most prompts in one call."""
    max_embedding_inputs: int = 2048
    """Most inputs of one call for embeddings."""
    max_embedding_tokens: int = 300_000
    """Most tokens of all inputs of one call for embeddings."""
    max_messages: int = 4096
    """Most messages of one conversation."""
    max_stop: int = MAX_STOP_STRINGS
    """Most stop strings."""
    max_stop_bytes: int = MAX_STOP_BYTES
    """Longest stop string."""
    max_logit_bias: int = MAX_LOGIT_BIAS
    """Most entries of logit_bias."""
    max_logprobs: int = MAX_LOGPROBS
    """Most log-probabilities for a token."""
    max_prompt_bytes_per_token: int = 8
    """A text longer than this many bytes for each token of the context is refused before it is tokenized."""

    def __post_init__(self) -> None:
        hardest = {
            "max_n": MAX_SEQUENCES,
            "max_stop": MAX_STOP_STRINGS,
            "max_stop_bytes": MAX_STOP_BYTES,
            "max_logit_bias": MAX_LOGIT_BIAS,
            "max_logprobs": MAX_LOGPROBS,
        }
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidRequest(field, f"must be a whole number of at least 1, not {value!r}")
            if value > hardest.get(field, value):
                raise InvalidRequest(field, f"{value} is more than the engine takes; give at most {hardest[field]}")


def check_count(param: str, count: int, most: int, what: str) -> None:
    if count > most:
        raise bad_request(param, f"{count} {what} are too many; give at most {most}")
