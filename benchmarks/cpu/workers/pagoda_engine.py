"""Pagoda's side of the comparison, through its public API."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tasks import Outcome, Setup, Task, serve

from pagoda import LLM, SamplingParams
from pagoda.engine.messages import NewTokens


class StallWatch:
    """Looks at the updates of every step: how long did a stream wait between two of its tokens?"""

    def __init__(self, step: Callable[..., list[Any]]) -> None:
        self._step = step
        self._last: dict[str, float] = {}
        self.longest = 0.0

    def start(self) -> None:
        self._last, self.longest = {}, 0.0

    def __call__(self, *meanwhile: Any) -> list[Any]:
        updates = self._step(*meanwhile)
        now = time.monotonic()
        for update in updates:
            if isinstance(update, NewTokens):
                self.longest = max(self.longest, now - self._last.get(update.request_id, now))
                self._last[update.request_id] = now
        return updates


def main() -> None:
    setup = Setup.from_command_line()
    settings: dict[str, Any] = {"compute": setup.compute} if setup.compute else {}
    llm = LLM(
        setup.model,
        device="cpu",
        num_threads=setup.num_threads,
        max_num_seqs=setup.num_streams,
        max_model_len=1024,
        enable_prefix_caching=False,
        **settings,
    )
    watch = llm.engine.loop.step = StallWatch(llm.engine.loop.step)  # type: ignore[method-assign]

    def run(task: Task) -> Outcome:
        params = SamplingParams(temperature=0.0, max_tokens=task.num_output, ignore_eos=True, detokenize=False)
        watch.start()
        start = time.monotonic()
        outputs = llm.generate(task.prompts(), params, use_tqdm=False)
        end = time.monotonic()
        if task.times_decoding:
            start = max(output.metrics.first_token_time or start for output in outputs)
        return Outcome(end - start, watch.longest if task.num_requests > 1 else None)

    serve(run)


if __name__ == "__main__":
    main()
