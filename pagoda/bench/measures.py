"""From what became of each request to the figures people compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from pagoda.bench.client import CUT_OFF, Outcome
from pagoda.bench.load import Run
from pagoda.core.errors import InvalidRequest

Floats = npt.NDArray[np.float64]
SLO_NAMES = {
    "ttft": "seconds to the first token",
    "tpot": "mean seconds a token after the first",
    "itl": "the longest but 5 % of the gaps between a request's tokens, in seconds",
    "e2e": "seconds to the end of the answer",
}


class Spread(msgspec.Struct, frozen=True):
    """Seconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float] | Floats) -> Spread | None:
        found = np.asarray(values, np.float64)
        if not found.size:
            return None
        p50, p90, p95, p99 = np.percentile(found, (50, 90, 95, 99)).tolist()
        return cls(float(found.mean()), p50, p90, p95, p99, float(found.max()))


class Failure(msgspec.Struct, frozen=True):
    kind: str
    count: int
    example: str
    """What the first one said."""


class Goodput(msgspec.Struct, frozen=True):
    """What was served well enough."""

    slo: dict[str, float]
    share: float
    """Of all requests, failed ones included."""
    requests_per_second: float
    tokens_per_second: float


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    num_requests: int
    num_ok: int
    failures: list[Failure]
    was_interrupted: bool
    requests_per_second: float
    output_tokens_per_second: float
    input_tokens_per_second: float
    num_input_tokens: int
    num_output_tokens: int
    num_cached_tokens: int
    """Of the prompts, as the server says."""
    mean_running: float
    """Requests under way, on average."""
    ttft: Spread | None
    itl: Spread | None
    tpot: Spread | None
    e2e: Spread | None
    goodput: Goodput | None
    client_cpu_share: float
    """Of one core; near 1 the load generator itself was the bottleneck."""
    largest_lag: float


def measure(run: Run, slo: dict[str, float] | None = None) -> Measures:
    seconds = max(run.ended - run.started, 1e-9)
    counted = run.counted
    whole = [outcome for outcome in counted if not outcome.error]
    wanted = [outcome for outcome in counted if outcome.error != CUT_OFF]
    ended = [outcome for outcome in run.outcomes if not outcome.error and run.started <= outcome.ended <= run.ended]
    num_tokens = sum(tokens_between(outcome, run.started, run.ended) for outcome in run.outcomes)
    return Measures(
        seconds=seconds,
        num_requests=len(wanted),
        num_ok=len(whole),
        failures=failures(counted),
        was_interrupted=run.was_interrupted,
        requests_per_second=len(ended) / seconds,
        output_tokens_per_second=num_tokens / seconds,
        input_tokens_per_second=sum(outcome.num_prompt for outcome in ended) / seconds,
        num_input_tokens=sum(outcome.num_prompt for outcome in whole),
        num_output_tokens=sum(outcome.num_output for outcome in whole),
        num_cached_tokens=sum(outcome.num_cached for outcome in whole),
        mean_running=_mean_running(run, seconds),
        ttft=Spread.of([first_token(outcome) for outcome in whole if outcome.times]),
        itl=Spread.of(np.concatenate([np.zeros(0), *(gaps(outcome) for outcome in whole)])),
        tpot=Spread.of([found for outcome in whole if (found := per_token(outcome)) is not None]),
        e2e=Spread.of([outcome.ended - outcome.sent for outcome in whole]),
        goodput=_goodput(run, wanted, seconds, slo) if slo else None,
        client_cpu_share=run.cpu_share,
        largest_lag=run.largest_lag,
    )


def first_token(outcome: Outcome) -> float:
    return outcome.times[0] - outcome.sent


def gaps(outcome: Outcome) -> Floats:
    """Between the pieces of an answer; a piece may hold several tokens."""
    return np.diff(np.frombuffer(outcome.times, np.float64)) if len(outcome.times) > 1 else np.zeros(0)


def per_token(outcome: Outcome) -> float | None:
    if len(outcome.times) < 2 or outcome.num_output < 2:
        return None
    return (outcome.times[-1] - outcome.times[0]) / (outcome.num_output - 1)


def tokens_between(outcome: Outcome, start: float, end: float) -> float:
    """How many tokens came in that time, whole answer or not. Pieces of one answer count the same."""
    if not outcome.times:
        return 0.0
    times = np.frombuffer(outcome.times, np.float64)
    inside = int(np.count_nonzero((times >= start) & (times <= end)))
    return inside * max(outcome.num_output, len(times)) / len(times)


def failures(outcomes: Iterable[Outcome]) -> list[Failure]:
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for outcome in outcomes:
        if outcome.error and outcome.error != CUT_OFF:
            counts[outcome.error] += 1
            examples.setdefault(outcome.error, outcome.message)
    return [Failure(kind, count, examples[kind]) for kind, count in counts.most_common()]


def keeps(outcome: Outcome, slo: dict[str, float]) -> bool:
    if outcome.error or not outcome.times:
        return False
    between = gaps(outcome)
    found = {
        "ttft": first_token(outcome),
        "tpot": per_token(outcome) or 0.0,
        "itl": float(np.percentile(between, 95)) if between.size else 0.0,
        "e2e": outcome.ended - outcome.sent,
    }
    return all(found[name] <= most for name, most in slo.items())


def parse_slo(words: Iterable[str]) -> dict[str, float]:
    """`ttft=0.5 itl=0.05`."""
    found: dict[str, float] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in SLO_NAMES:
            raise InvalidRequest("--slo", f"{name!r} is not one of {', '.join(SLO_NAMES)}")
        try:
            found[name] = float(value)
        except ValueError:
            raise InvalidRequest("--slo", f"{word!r} is not understood; write {name}=SECONDS") from None
        if not found[name] > 0:
            raise InvalidRequest("--slo", f"{name} must be above 0")
    return found


def _mean_running(run: Run, seconds: float) -> float:
    inside = (
        max(0.0, min(outcome.ended, run.ended) - max(outcome.sent, run.started))
        for outcome in run.outcomes
        if outcome.ended
    )
    return sum(inside) / seconds


def _goodput(run: Run, wanted: list[Outcome], seconds: float, slo: dict[str, float]) -> Goodput:
    share = sum(keeps(outcome, slo) for outcome in wanted) / len(wanted) if wanted else 0.0
    good = [outcome for outcome in run.outcomes if keeps(outcome, slo)]
    num_tokens = sum(tokens_between(outcome, run.started, run.ended) for outcome in good)
    num_ended = sum(run.started <= outcome.ended <= run.ended for outcome in good)
    return Goodput(slo, share, num_ended / seconds, num_tokens / seconds)
