"""What goes into the loop and what comes out of it. Between processes the same records travel as msgpack."""

from __future__ import annotations

from typing import Literal

import msgspec

from pagoda.core.errors import CapacityError, EngineError, InvalidRequest, PagodaError
from pagoda.core.request import FinishReason, Request
from pagoda.core.result import TokenLogprob


class AddRequest(msgspec.Struct, frozen=True, array_like=True, tag="add"):
    request: Request


class AbortRequest(msgspec.Struct, frozen=True, array_like=True, tag="abort"):
    """Nobody wants the answer any more."""

    request_id: str


class StopSequence(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """The text of one answer is complete: a stop string was found in it."""

    request_id: str
    sample_index: int


class PushBackRequest(msgspec.Struct, frozen=True, array_like=True, tag="push_back"):
    """Preempt whatever of this request runs."""

    request_id: str


class PauseRequest(msgspec.Struct, frozen=True, array_like=True, tag="pause"):
    """Nobody takes what comes of it: compute no more until `ResumeRequest`."""

    request_id: str


class ResumeRequest(msgspec.Struct, frozen=True, array_like=True, tag="resume"):
    request_id: str


Message = AddRequest | AbortRequest | StopSequence | PushBackRequest | PauseRequest | ResumeRequest


class Started(msgspec.Struct, frozen=True, array_like=True, tag="started"):
    """A request runs for the first time."""

    request_id: str
    time: float
    seed: int
    num_cached_tokens: int


class NewTokens(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="tokens"):
    """More of one answer. With a finish reason it is the last of it."""

    request_id: str
    sample_index: int
    time: float
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    """The token among `stop_token_ids` that ended it; None where the model's own end token did."""


class PromptScores(msgspec.Struct, frozen=True, array_like=True, tag="scores"):
    """How likely the model found some of the prompt's tokens, by position."""

    request_id: str
    scores: tuple[tuple[int, TokenLogprob], ...]


class Embedded(msgspec.Struct, frozen=True, array_like=True, tag="embedded"):
    """The whole answer to a request for a vector."""

    request_id: str
    time: float
    vector: bytes
    """Singles, little-endian."""


class Rejected(msgspec.Struct, frozen=True, array_like=True, tag="rejected"):
    """A request that was not accepted; it ends here."""

    request_id: str
    kind: Literal["invalid", "capacity", "engine"]
    message: str
    field: str = ""

    @classmethod
    def of(cls, request_id: str, error: PagodaError) -> Rejected:
        if isinstance(error, InvalidRequest):
            return cls(request_id, "invalid", str(error).removeprefix(f"{error.field}: "), error.field)
        return cls(request_id, "capacity" if isinstance(error, CapacityError) else "engine", str(error))

    @property
    def error(self) -> PagodaError:
        if self.kind == "invalid":
            return InvalidRequest(self.field, self.message)
        return CapacityError(self.message) if self.kind == "capacity" else EngineError(self.message)


class Aborted(msgspec.Struct, frozen=True, array_like=True, tag="aborted"):
    """An abort was carried out: nothing more comes of the request, if it was here at all."""

    request_id: str


Update = Started | NewTokens | PromptScores | Embedded | Rejected | Aborted
