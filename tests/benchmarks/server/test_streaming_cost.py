"""The benchmark stands on parts of the engine that have no other caller there: it must notice when they move."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.server.streaming_cost import NUM_TOKENS, measure, server, steps_alone, steps_of


def test_every_step_of_the_loop_is_timed() -> None:
    steps = steps_alone(num_rows=3, num_steps=40)
    assert len(steps) == 40 and steps[0] > 0


@pytest.mark.slow
def test_tokens_reach_the_client_through_all_processes(tmp_path: Path, smollm2_path: Path) -> None:
    with server(0.001, 4, tmp_path / "steps") as children:
        cost = measure(children, "chat", 4)
    assert cost.tokens_per_second > 0 and cost.tokens_per_event >= 1
    assert len(steps_of(tmp_path / "steps", 4)) >= NUM_TOKENS - 1
