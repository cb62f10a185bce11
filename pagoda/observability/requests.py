"""What became of requests, as plain numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from pagoda.observability.histogram import COUNTS, TOKENS, Histogram


def lengths() -> Histogram:
    return Histogram(TOKENS)


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
    running: Histogram = field(default_factory=Histogram)
    """From the first step to the end."""
    prefill: Histogram = field(default_factory=Histogram)
    """From the first step to the first token."""
    decode: Histogram = field(default_factory=Histogram)
    """From the first token to the last."""
    per_token: Histogram = field(default_factory=Histogram)
    """The same, for each token after the first."""
    prompt_lengths: Histogram = field(default_factory=lengths)
    computed_lengths: Histogram = field(default_factory=lengths)
    """Prompt tokens that were not found in the cache."""
    answer_lengths: Histogram = field(default_factory=lengths)
    longest_answers: Histogram = field(default_factory=lengths)
    """Of the answers to one prompt."""
    asked_answers: Histogram = field(default_factory=lambda: Histogram(COUNTS))
    """n"""
    asked_lengths: Histogram = field(default_factory=lengths)
    """max_tokens, where it was given."""
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_new_tokens: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    """Answers by finish reason; `abort` where the client left, `error` where the engine did."""
    failed: Counter[int] = field(default_factory=Counter)
    """Requests that were answered with an error, by status."""
    polls: Counter[str] = field(default_factory=Counter)
    """Questions of machines that watch, by path."""
    keys: dict[str, KeyUse] = field(default_factory=dict)

    def key(self, name: str) -> KeyUse:
        return self.keys.setdefault(name, KeyUse())
