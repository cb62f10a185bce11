"""What goes into the loop and what comes out of it."""

from __future__ import annotations

import msgspec

from pagoda.core.errors import PagodaError
from pagoda.core.request import FinishReason, Request
from pagoda.core.result import TokenLogprob


class AddRequest(msgspec.Struct, frozen=True):
    request: Request


class AbortRequest(msgspec.Struct, frozen=True):
    """Nobody wants the answer any more."""

    request_id: str


class StopSequence(msgspec.Struct, frozen=True):
    """The text of one answer is complete: a stop string was found in it."""

    request_id: str
    sample_index: int


class PushBackRequest(msgspec.Struct, frozen=True):
    """Preempt whatever of this request runs."""

    request_id: str


Message = AddRequest | AbortRequest | StopSequence | PushBackRequest


class Started(msgspec.Struct, frozen=True):
    """A request runs for the first time."""

    request_id: str
    time: float
    seed: int
    num_cached_tokens: int


class NewTokens(msgspec.Struct, frozen=True):
    """More of one answer. With a finish reason it is the last of it."""

    request_id: str
    sample_index: int
    time: float
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    """The token among `stop_token_ids` that ended it; None where the model's own end token did."""


class PromptScores(msgspec.Struct, frozen=True):
    """How likely the model found some of the prompt's tokens, by position."""

    request_id: str
    scores: tuple[tuple[int, TokenLogprob], ...]


class Rejected:
    """A request that was not accepted; it ends here."""

    __slots__ = ("error", "request_id")

    def __init__(self, request_id: str, error: PagodaError) -> None:
        self.request_id = request_id
        self.error = error


class Aborted(msgspec.Struct, frozen=True):
    """An abort was carried out: nothing more comes of the request, if it was here at all."""

    request_id: str


Update = Started | NewTokens | PromptScores | Rejected | Aborted
