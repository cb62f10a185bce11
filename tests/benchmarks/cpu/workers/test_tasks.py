"""What is counted in each task, and that every engine gets the same prompts."""

from __future__ import annotations

import pytest

from benchmarks.cpu.workers.tasks import TASKS, VOCAB_SIZE, Task, peak_mebibytes


@pytest.mark.parametrize(
    ("name", "num_counted"),
    [("prompt512", 512), ("decode1", 64), ("decode32", 32 * 32), ("serve32", 32 * 128)],
)
def test_tokens_counted(name: str, num_counted: int) -> None:
    assert TASKS[name].num_counted == num_counted


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
def test_prompts(task: Task) -> None:
    prompts = task.prompts()
    assert prompts == task.prompts()
    assert [len(prompt) for prompt in prompts] == [task.num_prompt] * task.num_requests
    assert all(10 <= token < VOCAB_SIZE for prompt in prompts for token in prompt)
    assert len({tuple(prompt) for prompt in prompts}) == task.num_requests


def test_peak_memory_of_this_process() -> None:
    assert 1 < peak_mebibytes() < 100_000
