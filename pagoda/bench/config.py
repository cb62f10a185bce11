"""The settings of `pagoda bench`, one frozen record per concept; its options are made from them."""

from __future__ import annotations

from typing import Literal

import msgspec

from pagoda.core.errors import InvalidRequest

DEFAULT_CONCURRENCY = 16
DEFAULT_REQUESTS = 200
DEFAULT_SWEEP_SECONDS = 20.0


class AskConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the server is asked."""

    model: str | None = None
    """What the model is called; None: the first that the server lists."""
    endpoint: Literal["completions", "chat"] = "completions"
    """Which of OpenAI's endpoints."""
    api_key: str | None = None
    """Sent as a bearer token; None: PAGODA_API_KEY."""
    tls_verify: bool = True
    """Check the server's certificate."""
    connect_timeout: float = 10.0
    """Seconds to reach the server."""
    timeout: float = 600.0
    """Seconds that one answer may take."""
    temperature: float = 0.0
    """Sent with every request."""
    ignore_eos: bool = True
    """Ask for answers of exactly the drawn length; servers of others may not know the field."""
    body: str | None = None
    """More fields for every request, as a JSON object."""


class LoadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How much at once, and for how long."""

    concurrency: int | None = None
    """Clients that each send again when answered; None: 16."""
    rate: float | None = None
    """Requests a second, answered or not."""
    burstiness: float = 1.0
    """Of the rate: 0 evenly, 1 Poisson, more for bursts."""
    num_requests: int | None = None
    """Requests (or conversations) to measure; None: 200."""
    duration: float | None = None
    """Seconds in which requests are begun; those under way then finish."""
    warmup: int = 4
    """Requests before the measurement."""
    sweep: str | None = None
    """Levels such as concurrency=1,2,4,8 or rate=0.5,1,2: finds where the server saturates, 20 s a level."""


class WorkloadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked. Lengths are N, uniform:LOW,HIGH, normal:MEAN,DEVIATION or lognormal:MEDIAN,SIGMA."""

    input_len: str = "normal:500,100"
    """Tokens of a prompt."""
    output_len: str = "normal:200,50"
    """Tokens of an answer."""
    prefix_len: int = 0
    """Tokens before each prompt that it shares with others."""
    num_prefixes: int = 1
    """Different shared beginnings."""
    num_turns: int = 1
    """Turns of a conversation, each with all that was said before."""
    prompts: Literal["ids", "text"] | None = None
    """Token ids, or words of about a token each; None: ids, but text for chat and conversations."""
    vocab_size: int | None = None
    """Token ids are drawn below this; None: 32000, for fixed workloads 100000."""
    seed: int | None = None
    """Draw the same workload again; None: a new one, since the server may remember the last."""
    workload: Literal["seed", "nano", "prefix", "decode256", "single", "ttft1k"] | None = None
    """A fixed workload that engines are compared with, in place of lengths."""
    trace: str | None = None
    """File to play again: JSON lines of `at`, `prompt` or `messages`, `max_tokens`."""
    speed: float = 1.0
    """Of the trace."""


class ThroughputConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `pagoda bench throughput` gives to the engine at once. Lengths are as above."""

    workload: Literal["random", "seed", "nano", "prefix", "decode256", "single", "ttft1k"] = "random"
    """Random prompts, or a fixed workload that engines are compared with."""
    num_prompts: int | None = None
    """Requests; None: 64, or as many as the fixed workload has."""
    input_len: str | None = None
    """Tokens of a random prompt; None: 256."""
    output_len: str | None = None
    """Tokens of its answer; None: 128."""
    repeats: int = 3
    """Runs, of which the best counts."""

    def __post_init__(self) -> None:
        _at_least_one(self, "num_prompts", "repeats")
        for name in ("input_len", "output_len"):
            if self.workload != "random" and getattr(self, name) is not None:
                raise InvalidRequest(_option(name), f"goes with random prompts; {self.workload!r} has its own lengths")


class LatencyConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What `pagoda bench latency` measures: one batch, again and again."""

    batch_size: int = 1
    """Requests at once."""
    input_len: int = 128
    """Tokens of each prompt."""
    output_len: int = 128
    """Tokens of each answer."""
    repeats: int = 10
    """Runs that count."""
    warmup: int = 2
    """Runs before them."""

    def __post_init__(self) -> None:
        _at_least_one(self, "batch_size", "input_len", "output_len", "repeats")
        if self.warmup < 0:
            raise InvalidRequest("--warmup", f"must not be negative, not {self.warmup}")


def _at_least_one(config: msgspec.Struct, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if value is not None and value < 1:
            raise InvalidRequest(_option(name), f"must be at least 1, not {value}")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
