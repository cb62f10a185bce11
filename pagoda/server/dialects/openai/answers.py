"""What chat and text completions have in common: one call, its job, and the answer as a whole or as events."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from pagoda.core.errors import EngineError, PagodaError
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.desk import Delivery
from pagoda.engine.output import RequestOutput
from pagoda.server.deadlines import deadline_of
from pagoda.server.dialects.openai.schema import Sampled
from pagoda.server.dialects.openai.usage import usage_of
from pagoda.server.errors import ApiError, from_engine
from pagoda.server.exchange import Exchange, encoder, error_body
from pagoda.server.generation import Job, News, Progress
from pagoda.server.service import Service

DONE = b"data: [DONE]\n\n"
Body = TypeVar("Body", bound=Sampled)
Prompt = tuple[str | None, list[int]]


class Answer(ABC, Generic[Body]):
    """The bytes of the answer to one call. What all its chunks have in common is written once."""

    prefix: ClassVar[str]
    """What its name begins with."""
    whole_kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def __init__(self, service: Service, body: Body) -> None:
        self.service = service
        self.body = body
        self.name = f"{self.prefix}-{body.request_id or uuid.uuid4().hex}"
        self._created = int(time.time())
        options = body.stream_options
        self._includes_usage = options is not None and options.include_usage
        self._usage_in_each = self._includes_usage and options is not None and options.continuous_usage_stats
        self._tail = b'],"usage":null}\n\n' if self._includes_usage else b"]}\n\n"
        self._seen: dict[int, RequestOutput] = {}
        self._progress: dict[int, list[Progress]] = {}

    @abstractmethod
    def choice(self, number: int, output: RequestOutput, index: int) -> dict[str, Any]:
        """One of the answers to prompt `number`, whole."""

    @abstractmethod
    def news(self, number: int, output: RequestOutput, index: int, news: News) -> list[bytes]:
        """The choices of the chunks that bring what is new in one answer."""

    def opening(self, num_answers: int) -> list[bytes]:
        """The choices of chunks that come before all others."""
        return []

    def top_fields(self, output: RequestOutput) -> dict[str, Any]:
        """What a whole answer, or its first chunk, has beside its choices."""
        return {}

    @property
    def counts_answer(self) -> bool:
        """Whether the tokens that were drawn are part of the answer."""
        return True

    async def send(self, exchange: Exchange, prompts: list[Prompt], sampling: SamplingParams) -> None:
        job = Job(
            name=self.name,
            prompts=prompts,
            sampling=sampling,
            key=exchange.key,
            priority=self.body.priority or 0,
            cache_salt=self.body.cache_salt or "",
            deadline=deadline_of(exchange, self.body.timeout, self.service.request_timeout),
        )
        self.service.calls.note(exchange.request_id, self.name)
        if self.body.stream:
            await self._stream(exchange, job)
        else:
            outputs = await exchange.while_listening(self.service.generation.whole(job))
            await exchange.json(self.whole(outputs))

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        choices = [
            self.choice(number, output, index)
            for number, output in enumerate(outputs)
            for index in range(len(output.outputs))
        ]
        usage = usage_of(outputs, self.counts_answer)
        return self._common(self.whole_kind) | self.top_fields(outputs[0]) | {"choices": choices, "usage": usage}

    async def _stream(self, exchange: Exchange, job: Job) -> None:
        """Nothing is sent before the first token is there: until then an error is an answer with its own status."""
        delivery = Delivery()
        async with self.service.generation.run(job, delivery) as outputs:
            first = await exchange.while_listening(anext(outputs))
            delivery.has_shown = True
            await exchange.while_listening(exchange.events(self._events(first, outputs)))

    async def _events(
        self, first: tuple[int, RequestOutput], outputs: AsyncGenerator[tuple[int, RequestOutput], None]
    ) -> AsyncIterator[bytes]:
        try:
            opening = b"".join(map(self._chunk, self.opening(len(first[1].outputs))))
            if fields := self.top_fields(first[1]):
                opening = opening.replace(b',"choices"', b"," + encoder.encode(fields)[1:-1] + b',"choices"', 1)
            yield opening + self._look(*first)
            async for number, output in outputs:
                events = self._look(number, output)
                if events:
                    yield events
            yield self._closing() + DONE
        except PagodaError as error:
            yield error_event(from_engine(error))

    def _look(self, number: int, output: RequestOutput) -> bytes:
        """All that is new in the answers to one prompt, as events."""
        self._seen[number] = output
        progress = self._progress.get(number)
        if progress is None:
            progress = self._progress[number] = [Progress() for _ in output.outputs]
        events: list[bytes] = []
        for index, (own, answer) in enumerate(zip(progress, output.outputs, strict=True)):
            news = own.look(answer)
            if news is None:
                continue
            if news.finish_reason in ("abort", "error"):
                raise EngineError(f"the answer ended with {news.finish_reason!r}")
            events += map(self._chunk, self.news(number, output, index, news))
        return b"".join(events)

    @cached_property
    def _head(self) -> bytes:
        """Known with the first chunk: which engine answers may not be, before."""
        return b"data: " + encoder.encode(self._common(self.chunk_kind))[:-1] + b',"choices":['

    def _chunk(self, choice: bytes) -> bytes:
        if self._usage_in_each and self._seen:
            return self._head + choice + self._usage()
        return self._head + choice + self._tail

    def _closing(self) -> bytes:
        return self._head + self._usage() if self._includes_usage else b""

    def _usage(self) -> bytes:
        return b'],"usage":' + encoder.encode(usage_of(self._seen.values(), self.counts_answer)) + b"}\n\n"

    def _common(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.name,
            "object": kind,
            "created": self._created,
            "model": self.service.model_name,
            "system_fingerprint": self.service.fingerprint,
        }


def error_event(error: ApiError) -> bytes:
    """Where an answer breaks off. No [DONE] follows: that would read as a success."""
    return b"data: " + encoder.encode(error_body(error)) + b"\n\n"
