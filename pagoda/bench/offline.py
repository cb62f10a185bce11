"""Runs of an engine in this process, without a server: the same requests at once, again and again."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from pagoda import LLM, SamplingParams
from pagoda.bench.config import ThroughputConfig
from pagoda.bench.lengths import Lengths
from pagoda.bench.steps import StepClock, StepCosts, TimedStep
from pagoda.bench.synthetic import Synthetic
from pagoda.bench.workloads import END_OF_IDS, FIXED, RANDOM_SEED, TokenRequest
from pagoda.core.errors import InvalidRequest
from pagoda.core.plan import StepPlan
from pagoda.engine import RequestOutput

DEFAULT_PROMPTS, DEFAULT_INPUT, DEFAULT_OUTPUT = 64, "256", "128"
WARM_PROMPT, WARM_ANSWER = 64, 4


@dataclass(frozen=True, eq=False)
class OfflineRun:
    seconds: float
    num_requests: int
    """That were answered."""
    num_input_tokens: int
    """Of their prompts; in a run that was interrupted, those that were computed."""
    num_output_tokens: int
    steps: list[TimedStep]
    costs: StepCosts
    outputs: list[RequestOutput]
    was_interrupted: bool = False


class OfflineBench:
    """All steps of the engine pass through its clock."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._clock = StepClock.before(llm.engine)

    def warm_up(self, requests: Sequence[TokenRequest]) -> None:
        """A short run: what is compiled or captured on first use is not to be counted."""
        capture = getattr(self._clock.executor, "warm_up", None)  # of graphs, where the device has such
        if capture is not None:
            capture()
        most = self._llm.engine.config.num_rows
        short = [TokenRequest(one.prompt_token_ids[:WARM_PROMPT], min(one.max_tokens, WARM_ANSWER)) for one in requests]
        if self.run(short[:most]).was_interrupted:
            raise KeyboardInterrupt

    def run(self, requests: Sequence[TokenRequest], shows_progress: bool = False) -> OfflineRun:
        """Submit all at once and wait for all. Ctrl-C ends it with what there is until then."""
        prompts = [request.prompt_token_ids for request in requests]
        sampling = [
            SamplingParams(temperature=0, max_tokens=request.max_tokens, ignore_eos=True, detokenize=False)
            for request in requests
        ]
        self._llm.reset_prefix_cache()
        self._clock.restart()
        start = time.perf_counter()
        try:
            outputs = self._llm.generate(prompts, sampling, use_tqdm=shows_progress)
        except KeyboardInterrupt:
            return self._interrupted()
        seconds = time.perf_counter() - start
        return OfflineRun(
            seconds=seconds,
            num_requests=len(requests),
            num_input_tokens=sum(len(prompt) for prompt in prompts),
            num_output_tokens=sum(len(output.outputs[0].token_ids) for output in outputs),
            steps=self._clock.steps(),
            costs=self._clock.costs(seconds),
            outputs=outputs,
        )

    def _interrupted(self) -> OfflineRun:
        """Told from the steps alone: the answers were given up."""
        steps = self._clock.steps()
        plans = [step.plan for step in steps]
        seconds = sum(step.seconds for step in steps)
        return OfflineRun(
            seconds=seconds,
            num_requests=_num_finished(plans),
            num_input_tokens=sum(int(plan.num_tokens[(plan.num_tokens > 1) | ~plan.draws].sum()) for plan in plans),
            num_output_tokens=sum(int(plan.draws.sum()) for plan in plans),
            steps=steps,
            costs=self._clock.costs(seconds),
            outputs=[],
            was_interrupted=True,
        )


def _num_finished(plans: Sequence[StepPlan]) -> int:
    """Sequences that left their rows and did not come again: those that do were pushed back."""
    tenants: dict[int, int] = {}
    finished: set[int] = set()
    for plan in plans:
        finished |= {tenants.pop(row) for row in plan.stopped if row in tenants}
        for start in plan.started:
            tenants[start.row] = start.sequence
            finished.discard(start.sequence)
    return len(finished)


def make_requests(config: ThroughputConfig, vocab_size: int) -> tuple[list[TokenRequest], str]:
    """The requests, and what they are in words. Ids that the model does not have are not drawn."""
    end_of_ids = min(END_OF_IDS, vocab_size)
    if config.workload != "random":
        count = {} if config.num_prompts is None else {"num_requests": config.num_prompts}
        requests = FIXED[config.workload](end_of_ids=end_of_ids, **count)
        return requests, f"{config.workload}, {len(requests):,} requests"
    inputs = Lengths.parse("--input-len", config.input_len or DEFAULT_INPUT)
    outputs = Lengths.parse("--output-len", config.output_len or DEFAULT_OUTPUT)
    drawn = _drawn(Synthetic(inputs, outputs, end_of_ids=end_of_ids, seed=RANDOM_SEED))
    requests = list(itertools.islice(drawn, config.num_prompts or DEFAULT_PROMPTS))
    return requests, f"random, {len(requests):,} requests of {inputs} tokens in and {outputs} out"


def batch_of(count: int, num_input: int, num_output: int, vocab_size: int) -> list[TokenRequest]:
    """Requests of equal lengths."""
    lengths = Lengths("constant", (num_input,)), Lengths("constant", (num_output,))
    drawn = _drawn(Synthetic(*lengths, end_of_ids=min(END_OF_IDS, vocab_size), seed=RANDOM_SEED))
    return list(itertools.islice(drawn, count))


def check_lengths(requests: Sequence[TokenRequest], llm: LLM) -> None:
    """Answers that the context cuts short would count as quick ones."""
    longest = max(len(request.prompt_token_ids) + request.max_tokens for request in requests)
    most = llm.engine.memory.max_model_len
    if longest > most:
        raise InvalidRequest(
            "max_model_len", f"the longest request has {longest} tokens, its answer included; the engine takes {most}"
        )


def _drawn(synthetic: Synthetic) -> Iterator[TokenRequest]:
    for conversation in synthetic.conversations():
        [question] = conversation.questions
        yield TokenRequest(cast(list[int], question.prompt), question.max_tokens)
