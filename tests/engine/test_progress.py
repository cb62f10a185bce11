"""The bar counts every request once and every token once, and is silent where nobody looks."""

from __future__ import annotations

import io

import pytest

from pagoda.engine.output import CompletionOutput, RequestMetrics, RequestOutput
from pagoda.engine.progress import BatchProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def output(name: str, num_samples: int = 1) -> RequestOutput:
    samples = [CompletionOutput(index) for index in range(num_samples)]
    return RequestOutput(name, None, [1], samples, RequestMetrics(0.0))


def test_several_news_of_one_request_count_once(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with BatchProgress(2, enabled=True) as progress:
        first = output("0", num_samples=3)
        for sample in first.outputs:
            sample.token_ids = [1, 2]
        first.finished = True
        for _ in range(3):
            progress.update(first)
        assert progress._num_drawn == 6
        assert progress._bar.tasks[0].completed == 1
        second = output("1")
        second.outputs[0].token_ids = [1]
        progress.update(second)
        assert progress._num_drawn == 7
        assert progress._bar.tasks[0].completed == 1
        second.finished = True
        progress.update(second)
    assert "2/2" in terminal.getvalue() and "tokens/s" in terminal.getvalue()


@pytest.mark.parametrize(
    ("terminal", "enabled", "count"), [(io.StringIO(), True, 2), (Terminal(), False, 2), (Terminal(), True, 0)]
)
def test_it_is_silent_where_nobody_looks(terminal, enabled, count, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stderr", terminal)
    with BatchProgress(count, enabled=enabled) as progress:
        progress.update(output("0"))
    assert terminal.getvalue() == ""
