"""Many streams read as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from pagoda.server.call import Run
from pagoda.server.generation import Job, _merged


class Streams:
    """Each gives its number twice; how many have begun and not ended is counted."""

    def __init__(self, count: int) -> None:
        self.num_open = self.most_open = self.num_begun = 0
        self.all = [self._one(number) for number in range(count)]

    async def _one(self, number: int) -> AsyncGenerator[Any, None]:
        self.num_open += 1
        self.num_begun += 1
        self.most_open = max(self.most_open, self.num_open)
        try:
            for turn in range(2):
                await asyncio.sleep(0.001 * (number * 7 % 5))
                yield (number, turn)
        finally:
            self.num_open -= 1


def run() -> Run:
    return Run(cast(Job, None))


@pytest.mark.parametrize(("count", "most"), [(1, 4), (4, 4), (40, 4), (40, 1), (40, 400)])
def test_every_stream_is_read_to_its_end_and_few_at_a_time(count: int, most: int):
    async def read() -> tuple[Streams, list[tuple[int, Any]]]:
        streams = Streams(count)
        return streams, [found async for found in _merged(streams.all, run(), most)]

    streams, found = asyncio.run(read())
    assert sorted(found) == [(number, (number, turn)) for number in range(count) for turn in range(2)]
    assert streams.most_open <= most and streams.num_open == 0


def test_leaving_early_begins_no_more():
    async def leave() -> Streams:
        streams = Streams(20)
        outputs = _merged(streams.all, run(), 4)
        await anext(outputs)
        await outputs.aclose()
        for stream in streams.all:
            await stream.aclose()
        return streams

    streams = asyncio.run(leave())
    assert streams.num_begun <= 5 and streams.num_open == 0
