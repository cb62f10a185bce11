"""What became of requests, as plain numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pagoda.observability.histogram import TOKENS, Histogram


@dataclass
class KeyUse:
    """What one API key has used."""

    num_requests: int = 0
    num_prompt_tokens: int = 0
    num_new_tokens: int = 0
    num_refused: int = 0


@dataclass
class RequestStatistics:
    """Since the server started. Times are seconds."""

    first_token: Histogram = field(default_factory=Histogram)
    """From arrival to the first token."""
    between_tokens: Histogram = field(default_factory=Histogram)
    whole: Histogram = field(default_factory=Histogram)
    """From arrival to the end."""
    queued: Histogram = field(default_factory=Histogram)
    """From arrival to the first step."""
    prefill: Histogram = field(default_factory=Histogram)
    decode: Histogram = field(default_factory=Histogram)
    prompt_lengths: Histogram = field(default_factory=lambda: Histogram(TOKENS))
    answer_lengths: Histogram = field(default_factory=lambda: Histogram(TOKENS))
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_new_tokens: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    """Answers by finish reason."""
    failed: Counter[int] = field(default_factory=Counter)
    """Requests that were answered with an error, by status."""
    keys: dict[str, KeyUse] = field(default_factory=dict)

    def key(self, name: str) -> KeyUse:
        return self.keys.setdefault(name, KeyUse())
