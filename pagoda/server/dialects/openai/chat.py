"""POST /v1/chat/completions."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec

from pagoda.core.errors import EngineError, PagodaError
from pagoda.engine.desk import Delivery
from pagoda.engine.output import CompletionOutput, Logprob, RequestOutput
from pagoda.server.dialects.openai.parameters import chat_max_tokens, check_chat, sampling_params
from pagoda.server.dialects.openai.prompts import read_conversation
from pagoda.server.dialects.openai.schema import ChatRequest
from pagoda.server.dialects.openai.usage import usage_of
from pagoda.server.errors import ApiError, bad_request, from_engine
from pagoda.server.exchange import Exchange, encoder, error_body
from pagoda.server.generation import Job, News, Progress
from pagoda.server.service import Service

DECODER = msgspec.json.Decoder(ChatRequest)
DONE = b"data: [DONE]\n\n"


async def chat_completions(exchange: Exchange, service: Service) -> None:
    body = await exchange.read(DECODER)
    service.check_model(body.model)
    answer = ChatAnswer(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), service, body)
    job = await make_job(answer, body, exchange, service)
    if body.stream:
        await stream_answer(exchange, service, job, answer)
    else:
        outputs = await exchange.while_listening(service.generation.whole(job))
        await exchange.json(answer.whole(outputs[0]))


async def make_job(answer: ChatAnswer, body: ChatRequest, exchange: Exchange, service: Service) -> Job:
    check_chat(body)
    num_logprobs = None
    if body.logprobs:
        num_logprobs = body.top_logprobs or 0
    elif body.top_logprobs:
        raise bad_request("top_logprobs", "needs logprobs to be true")
    sampling = sampling_params(
        body, exchange.limits, max_tokens=chat_max_tokens(body), logprobs=num_logprobs, detokenize=True
    )
    variables = {**(body.chat_template_kwargs or {}), "add_generation_prompt": body.add_generation_prompt}
    prompt = await read_conversation(body.messages, service.reader, exchange.limits, variables)
    service.check_length(len(prompt[1]))
    return Job(
        name=answer.name,
        prompts=[prompt],
        sampling=sampling,
        key=exchange.key,
        priority=body.priority or 0,
        cache_salt=body.cache_salt or "",
    )


async def stream_answer(exchange: Exchange, service: Service, job: Job, answer: ChatAnswer) -> None:
    """Nothing is sent before the first token is there: until then an error is a proper answer with its own status."""
    delivery = Delivery()
    async with service.generation.run(job, delivery) as outputs:
        first = await exchange.while_listening(anext(outputs))
        delivery.has_shown = True
        await exchange.while_listening(exchange.events(chat_events(answer, first, outputs)))


async def chat_events(
    answer: ChatAnswer, first: tuple[int, RequestOutput], outputs: AsyncGenerator[tuple[int, RequestOutput], None]
) -> AsyncIterator[bytes]:
    try:
        output = first[1]
        progress = [Progress() for _ in output.outputs]
        yield b"".join(answer.opening(index) for index in range(len(progress)))
        yield answer.news(output, progress)
        async for _, output in outputs:
            events = answer.news(output, progress)
            if events:
                yield events
        yield answer.closing(output) + DONE
    except PagodaError as error:
        yield error_event(from_engine(error))


def error_event(error: ApiError) -> bytes:
    """Where an answer breaks off. No [DONE] follows: that would read as a success."""
    return b"data: " + encoder.encode(error_body(error)) + b"\n\n"


@dataclass
class ChatAnswer:
    """The bytes of one answer. What all its chunks have in common is written once."""

    name: str
    created: int
    service: Service
    body: ChatRequest

    def __post_init__(self) -> None:
        options = self.body.stream_options
        self._includes_usage = options is not None and options.include_usage
        self._usage_in_each = self._includes_usage and options is not None and options.continuous_usage_stats
        common = {
            "id": self.name,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.service.model_name,
            "system_fingerprint": self.service.fingerprint,
        }
        self._head = b"data: " + encoder.encode(common)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if self._includes_usage else b"]}\n\n"

    def opening(self, index: int) -> bytes:
        return self._chunk(
            b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}' % index
        )

    def news(self, output: RequestOutput, progress: list[Progress]) -> bytes:
        """All that is new in the answers, as events."""
        events = []
        for index, (own, answer) in enumerate(zip(progress, output.outputs, strict=True)):
            news = own.look(answer)
            if news is None:
                continue
            if news.text or news.logprobs:
                events.append(self._chunk(self._delta(index, news), output))
            if news.finish_reason is not None:
                check_ended_well(news)
                events.append(self._chunk(self._end(index, news), output))
        return b"".join(events)

    def closing(self, output: RequestOutput) -> bytes:
        if not self._includes_usage:
            return b""
        return self._head + b'],"usage":' + encoder.encode(usage_of([output])) + b"}\n\n"

    def whole(self, output: RequestOutput) -> dict[str, Any]:
        return {
            "id": self.name,
            "object": "chat.completion",
            "created": self.created,
            "model": self.service.model_name,
            "system_fingerprint": self.service.fingerprint,
            "choices": [self._choice(answer) for answer in output.outputs],
            "usage": usage_of([output]),
        }

    def _choice(self, answer: CompletionOutput) -> dict[str, Any]:
        logprobs = answer.logprobs
        found = {"content": self._scores(answer.token_ids, logprobs)} if logprobs is not None else None
        return {
            "index": answer.index,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": found,
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
        }

    def _delta(self, index: int, news: News) -> bytes:
        scores = b"null"
        if news.logprobs:
            scores = encoder.encode({"content": self._scores(news.token_ids, news.logprobs)})
        text = encoder.encode(news.text)
        return b'{"index":%d,"delta":{"content":%b},"logprobs":%b,"finish_reason":null}' % (index, text, scores)

    def _end(self, index: int, news: News) -> bytes:
        reason, stop = encoder.encode(news.finish_reason), encoder.encode(news.stop_reason)
        return b'{"index":%d,"delta":{},"logprobs":null,"finish_reason":%b,"stop_reason":%b}' % (index, reason, stop)

    def _chunk(self, choice: bytes, output: RequestOutput | None = None) -> bytes:
        if self._usage_in_each and output is not None:
            return self._head + choice + b'],"usage":' + encoder.encode(usage_of([output])) + b"}\n\n"
        return self._head + choice + self._tail

    def _scores(self, token_ids: list[int], logprobs: list[dict[int, Logprob]]) -> list[dict[str, Any]]:
        most = self.body.top_logprobs or 0
        scores = []
        for token_id, found in zip(token_ids, logprobs, strict=True):
            best = sorted(found.items(), key=lambda item: item[1].rank)[:most]
            own = self._score(token_id, found[token_id])
            scores.append(own | {"top_logprobs": [self._score(other, score) for other, score in best]})
        return scores

    def _score(self, token_id: int, score: Logprob) -> dict[str, Any]:
        data = self.service.tokenizer.token_bytes(token_id, show_special=True)
        return {"token": data.decode("utf-8", "replace"), "logprob": score.logprob, "bytes": list(data)}


def check_ended_well(news: News) -> None:
    if news.finish_reason in ("abort", "error"):
        raise EngineError(f"the answer ended with {news.finish_reason!r}")
