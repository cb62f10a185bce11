"""Where the time of a decoding step goes: products by weight format, attention, sampling, Python, waiting.

make bench-cpu-profile
.venv/bin/python -m benchmarks.cpu.step_profile --model smollm2 --context 128
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.report import machine, print_table, write_json
from pagoda import LLM, SamplingParams
from pagoda.engine.messages import NewTokens
from pagoda.kernels.base import RaggedBatch
from pagoda.kernels.cpu.recorder import Operation

PRODUCTS = tuple(operation for operation in Operation if "LINEAR" in operation.name)
Times = dict[str, float]
"""Seconds by what they were spent on."""


class Stopwatch:
    """A function, and how long it took in all."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.seconds = 0.0
        self.result: Any = None

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        start = time.perf_counter()
        self.result = self._function(*args, **keywords)
        self.seconds += time.perf_counter() - start
        return self.result


class Profiler:
    """Watches the steps in which every stream gets a token, and nothing else."""

    def __init__(self, llm: LLM, num_streams: int) -> None:
        self._num_streams = num_streams
        self.llm = llm
        loop: Any = llm.engine.loop
        executor: Any = loop.executor
        self.program: Any = executor._forward._program
        self._native = self.program.measure()
        self._step = loop.step
        self._sample = executor._operators.sample = Stopwatch(executor._operators.sample)
        loop.step = self.step
        self.times: Times = {}
        self.num_steps = 0
        self._last_end = 0.0

    def step(self, *meanwhile: Any) -> list[Any]:
        self._native[:] = 0
        self._sample.seconds = 0.0
        start = time.perf_counter()
        updates: list[Any] = self._step(*meanwhile)
        end = time.perf_counter()
        if sum(isinstance(update, NewTokens) for update in updates) == self._num_streams:
            if self._last_end:
                self._add(start, end)
            self._last_end = end
        else:
            self._last_end = 0.0
        return updates

    def _add(self, start: float, end: float) -> None:
        native = self._native * 1e-9
        spent = {operation.name.lower(): float(native[operation]) for operation in Operation}
        spent["waiting for the other threads"] = float(native[-1])
        spent["sampling"] = self._sample.seconds
        spent["Python, in the step"] = (end - start) - float(native.sum()) - self._sample.seconds
        spent["Python, between steps"] = start - self._last_end
        for name, seconds in spent.items():
            self.times[name] = self.times.get(name, 0.0) + seconds
        self.num_steps += 1

    def run(self, context: int, num_output: int) -> None:
        rng = np.random.default_rng(1)
        prompts = [rng.integers(10, 20_000, context).tolist() for _ in range(self._num_streams)]
        params = SamplingParams(temperature=0.0, max_tokens=num_output, ignore_eos=True, detokenize=False)
        self.llm.generate(prompts, params, use_tqdm=False)


def formats_by_index(llm: LLM, program: Any) -> dict[int, str]:
    """The format of each packed weight, by its place."""
    places = program._recorder.weights._indices
    return {places[id(weight)]: weight.format for weight in llm.engine.model.weights() if id(weight) in places}


@contextmanager
def only_products_of(program: Any, indices: set[int]) -> Iterator[None]:
    """Every other product is turned into something harmless and cheap; what comes out means nothing."""
    changed = []
    for record in program._instructions:
        if record.operation in PRODUCTS and record.arguments[1] not in indices:
            changed.append((record, record.operation, record.arguments[0]))
            record.operation, record.arguments[0] = Operation.ROPE_TABLE, 0
    try:
        yield
    finally:
        for record, operation, argument in changed:
            record.operation, record.arguments[0] = operation, argument


def decode_batch(llm: LLM, num_streams: int, context: int) -> RaggedBatch:
    rows = np.arange(num_streams, dtype=np.int32)
    num_pages = -(-context // llm.engine.config.block_size)
    table = rows[:, None] * num_pages + np.arange(num_pages, dtype=np.int32)
    return RaggedBatch(
        token_ids=rows + 10,
        positions=np.full(num_streams, context - 1, np.int32),
        row_starts=np.arange(num_streams + 1, dtype=np.int32),
        context_lens=np.full(num_streams, context, np.int32),
        page_tables=(table,) * len(llm.engine.model.cache_groups()),
    )


def split_products(llm: LLM, program: Any, num_streams: int, context: int, num_steps: int = 12) -> dict[str, float]:
    """The share of each weight format in the time of all products, each measured without the others."""
    formats = formats_by_index(llm, program)
    batch = decode_batch(llm, num_streams, context)
    rows = np.arange(num_streams, dtype=np.int32)
    seconds = {}
    for name in sorted(set(formats.values())):
        with only_products_of(program, {index for index, format in formats.items() if format == name}):
            samples = []
            for _ in range(num_steps):
                program.nanoseconds[:] = 0
                program.run(batch, rows)
                samples.append(float(sum(program.nanoseconds[operation] for operation in PRODUCTS)))
        seconds[name] = float(np.median(samples))
    total = sum(seconds.values())
    return {name: value / total for name, value in seconds.items() if value}


def profile(model: str, num_threads: int, num_streams: int, context: int) -> tuple[Times, dict[str, float]]:
    """Seconds a step by what they went to, and how the products divide into weight formats."""
    llm = LLM(
        model,
        device="cpu",
        num_threads=num_threads,
        max_num_seqs=num_streams,
        max_model_len=context + 128,
        enable_prefix_caching=False,
    )
    with llm:
        profiler = Profiler(llm, num_streams)
        profiler.run(context, 4 + 2 * num_streams)  # warm
        profiler.times, profiler.num_steps = {}, 0
        profiler.run(context, 96)
        shares = split_products(llm, profiler.program, num_streams, context)
    return {name: seconds / profiler.num_steps for name, seconds in profiler.times.items()}, shares


def with_formats(times: Times, shares: dict[str, float]) -> Times:
    """The products, format by format; the rest as it was, what took no time left out."""
    products = sum(times[operation.name.lower()] for operation in PRODUCTS)
    split = {f"products, {name}": products * share for name, share in shares.items()}
    names = {operation.name.lower() for operation in PRODUCTS}
    return {**split, **{name: value for name, value in times.items() if name not in names and value}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 32])
    parser.add_argument("--context", type=int, default=128, help="tokens of each prompt (default: %(default)s)")
    args = parser.parse_args()
    results: dict[str, Times] = {}
    for num_streams in args.streams:
        times, shares = profile(args.model, args.threads, num_streams, args.context)
        results[str(num_streams)] = with_formats(times, shares)
    names = list(dict.fromkeys(name for times in results.values() for name in times))
    rows = []
    for name in [*names, "a step"]:
        row = [name]
        for times in results.values():
            total = sum(times.values())
            seconds = times.get(name, 0.0) if name != "a step" else total
            row += [f"{seconds * 1e6:,.0f}", f"{seconds / total:.1%}"]
        rows.append(tuple(row))
    header = ("", *(word for n in args.streams for word in (f"{n} stream(s), µs", "share")))
    print(f"{machine()}; {args.threads} threads, first thread's time; load {os.getloadavg()[0]:.1f}")
    print_table("Where a decoding step's time goes", header, rows)
    record = {"model": args.model, "context": args.context, "seconds_a_step": results}
    print(f"\nwritten to {write_json('cpu_profile', record)}")


if __name__ == "__main__":
    main()
