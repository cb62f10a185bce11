"""What is known of one call while it is answered: for the log, the counters and the traces."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pagoda.core.errors import PagodaError
from pagoda.engine.output import RequestOutput

if TYPE_CHECKING:
    from pagoda.server.generation import Job


def num_new_tokens(output: RequestOutput) -> int:
    return sum(len(answer.token_ids) for answer in output.outputs)


@dataclass
class Run:
    """A job on the engine."""

    job: Job
    outputs: dict[int, RequestOutput] = field(default_factory=dict)
    """By the number of the prompt, as far as anything came."""
    error: PagodaError | None = None

    @property
    def num_new_tokens(self) -> int:
        return sum(map(num_new_tokens, self.outputs.values()))

    @property
    def unfinished_reason(self) -> str:
        """How answers ended that have no reason of their own."""
        return "abort" if self.error is None else "error"

    @property
    def finish_reasons(self) -> list[str]:
        """Of every answer that was asked for."""
        reasons: list[str] = []
        for number in range(len(self.job.prompts)):
            output = self.outputs.get(number)
            found = [a.finish_reason for a in output.outputs] if output else [None] * self.job.sampling.n
            reasons += [reason or self.unfinished_reason for reason in found]
        return reasons

    def as_fields(self) -> dict[str, Any]:
        """Times and tokens, for a line of the log."""
        metrics = [output.metrics for output in self.outputs.values()]
        queued = [m.first_scheduled_time - m.arrival_time for m in metrics if m.first_scheduled_time is not None]
        first = [m.first_token_time - m.arrival_time for m in metrics if m.first_token_time is not None]
        return {
            "engine_id": self.job.name,
            "prompt_tokens": self.job.num_prompt_tokens,
            "cached_tokens": sum(output.num_cached_tokens for output in self.outputs.values()),
            "new_tokens": self.num_new_tokens,
            "queue_seconds": round(max(queued), 6) if queued else None,
            "first_token_seconds": round(min(first), 6) if first else None,
            "finish_reasons": self.finish_reasons,
        }


@dataclass
class Call:
    request_id: str
    arrival_time: float
    """Of the monotonic clock."""
    runs: list[Run] = field(default_factory=list)


_current: ContextVar[Call | None] = ContextVar("current_call", default=None)


def begin_call(call: Call) -> None:
    """From here on, in this task and those it starts."""
    _current.set(call)


def current_call() -> Call | None:
    return _current.get()
