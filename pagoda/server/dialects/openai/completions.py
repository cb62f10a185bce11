"""POST /v1/completions: text in, text on; with `echo` it also scores a prompt."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec

from pagoda.core.errors import PagodaError
from pagoda.engine.desk import Delivery
from pagoda.engine.output import Logprob, RequestOutput
from pagoda.server.dialects.openai.chat import DONE, check_ended_well, error_event
from pagoda.server.dialects.openai.parameters import completion_max_tokens, sampling_params
from pagoda.server.dialects.openai.prompts import read_prompts
from pagoda.server.dialects.openai.schema import CompletionRequest
from pagoda.server.dialects.openai.usage import usage_of
from pagoda.server.errors import from_engine, not_supported
from pagoda.server.exchange import Exchange, encoder
from pagoda.server.generation import Job, Progress
from pagoda.server.service import Service

DECODER = msgspec.json.Decoder(CompletionRequest)


async def completions(exchange: Exchange, service: Service) -> None:
    body = await exchange.read(DECODER)
    service.check_model(body.model)
    answer = TextAnswer(f"cmpl-{uuid.uuid4().hex}", int(time.time()), service, body)
    job = await make_job(answer, body, exchange, service)
    if body.stream:
        await stream_answer(exchange, service, job, answer)
    else:
        outputs = await exchange.while_listening(service.generation.whole(job))
        await exchange.json(answer.whole(outputs))


async def make_job(answer: TextAnswer, body: CompletionRequest, exchange: Exchange, service: Service) -> Job:
    if body.suffix:
        raise not_supported("suffix", "filling in before a suffix")
    more: dict[str, Any] = {"max_tokens": completion_max_tokens(body), "logprobs": body.logprobs}
    if body.echo and body.logprobs is not None:
        more["prompt_logprobs"] = body.logprobs
        body.prompt_logprobs = None
    sampling = sampling_params(body, exchange.limits, **more)
    prompts = await read_prompts(body.prompt, service.reader, exchange.limits)
    for _, token_ids in prompts:
        service.check_length(len(token_ids))
    return Job(
        name=answer.name,
        prompts=prompts,
        sampling=sampling,
        key=exchange.key,
        priority=body.priority or 0,
        cache_salt=body.cache_salt or "",
    )


async def stream_answer(exchange: Exchange, service: Service, job: Job, answer: TextAnswer) -> None:
    delivery = Delivery()
    async with service.generation.run(job, delivery) as outputs:
        first = await exchange.while_listening(anext(outputs))
        delivery.has_shown = True
        await exchange.while_listening(exchange.events(text_events(answer, len(job.prompts), first, outputs)))


async def text_events(
    answer: TextAnswer,
    num_prompts: int,
    first: tuple[int, RequestOutput],
    outputs: AsyncGenerator[tuple[int, RequestOutput], None],
) -> AsyncIterator[bytes]:
    pieces = [StreamedText(answer, number) for number in range(num_prompts)]
    seen: dict[int, RequestOutput] = {}
    try:
        number, output = first
        seen[number] = output
        yield pieces[number].news(output)
        async for number, output in outputs:
            seen[number] = output
            events = pieces[number].news(output)
            if events:
                yield events
        yield answer.closing(seen) + DONE
    except PagodaError as error:
        yield error_event(from_engine(error))


@dataclass
class TextAnswer:
    name: str
    created: int
    service: Service
    body: CompletionRequest

    def __post_init__(self) -> None:
        options = self.body.stream_options
        self._includes_usage = options is not None and options.include_usage
        common = self._common()
        self._head = b"data: " + encoder.encode(common)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if self._includes_usage else b"]}\n\n"

    @property
    def num_answers(self) -> int:
        return self.body.n or 1

    @property
    def wants_answer(self) -> bool:
        """With max_tokens 0 the token that the engine drew is nobody's business."""
        return self.body.max_tokens != 0

    def whole(self, outputs: list[RequestOutput]) -> dict[str, Any]:
        choices = [
            self._choice(number, output, index)
            for number, output in enumerate(outputs)
            for index in range(len(output.outputs))
        ]
        return self._common() | {"choices": choices, "usage": usage_of(outputs, self.wants_answer)}

    def chunk(self, choice: dict[str, Any]) -> bytes:
        return self._head + encoder.encode(choice) + self._tail

    def closing(self, outputs: dict[int, RequestOutput]) -> bytes:
        if not self._includes_usage:
            return b""
        usage = usage_of(outputs.values(), self.wants_answer)
        return self._head + b'],"usage":' + encoder.encode(usage) + b"}\n\n"

    def prompt_text(self, output: RequestOutput) -> str:
        return output.prompt if output.prompt is not None else self.service.tokenizer.decode(output.prompt_token_ids)

    def scores(self, output: RequestOutput, index: int, start: int = 0) -> dict[str, Any] | None:
        """From token `start` of the answer on; with `echo` the prompt's tokens come first."""
        if self.body.logprobs is None:
            return None
        scores = TextScores(self.service, self.body.logprobs)
        if self.body.echo and start == 0:
            for token_id, found in zip(output.prompt_token_ids, output.prompt_logprobs or [], strict=False):
                scores.add(token_id, found)
        answer = output.outputs[index]
        if self.wants_answer:
            for token_id, found in zip(answer.token_ids[start:], (answer.logprobs or [])[start:], strict=True):
                scores.add(token_id, found)
        return scores.as_fields()

    def _choice(self, number: int, output: RequestOutput, index: int) -> dict[str, Any]:
        answer = output.outputs[index]
        echoed = self.prompt_text(output) if self.body.echo else ""
        return {
            "index": number * self.num_answers + index,
            "text": echoed + (answer.text if self.wants_answer else ""),
            "logprobs": self.scores(output, index),
            "finish_reason": answer.finish_reason if self.wants_answer else "length",
            "stop_reason": answer.stop_reason if self.wants_answer else None,
        }

    def _common(self) -> dict[str, Any]:
        return {
            "id": self.name,
            "object": "text_completion",
            "created": self.created,
            "model": self.service.model_name,
            "system_fingerprint": self.service.fingerprint,
        }


class StreamedText:
    """The answers to one prompt on their way out."""

    def __init__(self, answer: TextAnswer, number: int) -> None:
        self._answer = answer
        self._first_index = number * answer.num_answers
        self._progress = [Progress() for _ in range(answer.num_answers)]
        self._num_shown = [0] * answer.num_answers

    def news(self, output: RequestOutput) -> bytes:
        events = []
        for index, (progress, answer) in enumerate(zip(self._progress, output.outputs, strict=True)):
            news = progress.look(answer)
            if news is None:
                continue
            if news.finish_reason is not None:
                check_ended_well(news)
            start = self._num_shown[index]
            self._num_shown[index] += len(news.token_ids)
            text = news.text if self._answer.wants_answer else ""
            if self._answer.body.echo and start == 0:
                text = self._answer.prompt_text(output) + text
            choice = {
                "index": self._first_index + index,
                "text": text,
                "logprobs": self._answer.scores(output, index, start),
                "finish_reason": news.finish_reason,
                "stop_reason": news.stop_reason,
            }
            events.append(self._answer.chunk(choice))
        return b"".join(events)


class TextScores:
    """The four parallel lists of the old API."""

    def __init__(self, service: Service, most: int) -> None:
        self._service = service
        self._most = most
        self._tokens: list[str] = []
        self._logprobs: list[float | None] = []
        self._best: list[dict[str, float] | None] = []
        self._offsets: list[int] = []
        self._offset = 0

    def add(self, token_id: int, found: dict[int, Logprob] | None) -> None:
        text = self._text(token_id)
        self._tokens.append(text)
        self._offsets.append(self._offset)
        self._offset += len(text)
        self._logprobs.append(found[token_id].logprob if found is not None else None)
        if found is None:
            self._best.append(None)
            return
        ranked = sorted(found.items(), key=lambda item: item[1].rank)
        best = {self._text(other): score.logprob for other, score in ranked[: self._most]}
        self._best.append(best | {text: found[token_id].logprob})

    def as_fields(self) -> dict[str, Any]:
        return {
            "tokens": self._tokens,
            "token_logprobs": self._logprobs,
            "top_logprobs": self._best,
            "text_offset": self._offsets,
        }

    def _text(self, token_id: int) -> str:
        return self._service.tokenizer.decode([token_id], continues_text=True)
