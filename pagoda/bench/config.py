"""The settings of `pagoda bench serve`, one frozen record per concept; its options are made from them."""

from __future__ import annotations

from typing import Literal

import msgspec

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

    input_length: str = "normal:500,100"
    """Tokens of a prompt."""
    output_length: str = "normal:200,50"
    """Tokens of an answer."""
    prefix_length: int = 0
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
