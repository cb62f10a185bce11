from __future__ import annotations

import asyncio

import pytest

from pagoda.core.errors import EngineError
from pagoda.engine.bell import Bell


def test_one_look_takes_all_news() -> None:
    async def main() -> None:
        bell = Bell()
        bell.put_nowait(None)
        bell.put_nowait(None)
        assert await bell.get() is None
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(bell.get(), 0.01)

    asyncio.run(main())


def test_news_wake_the_reader() -> None:
    async def main() -> None:
        bell = Bell()
        waiting = asyncio.ensure_future(bell.get())
        await asyncio.sleep(0)
        assert not waiting.done()
        bell.put_nowait(None)
        bell.put_nowait(None)
        assert await waiting is None

    asyncio.run(main())


def test_an_error_is_seen_whatever_came_with_it() -> None:
    async def main() -> None:
        bell = Bell()
        first, second = EngineError("first"), EngineError("second")
        bell.put_nowait(None)
        bell.put_nowait(first)
        bell.put_nowait(second)
        assert await bell.get() is first

    asyncio.run(main())


def test_a_reader_that_gave_up_leaves_the_bell_in_order() -> None:
    async def main() -> None:
        bell = Bell()
        waiting = asyncio.ensure_future(bell.get())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        bell.put_nowait(None)
        assert await bell.get() is None

    asyncio.run(main())
