"""POST /v1/completions: text in, text on; with `echo` it also scores a prompt."""

from __future__ import annotations

from typing import Any

import msgspec

from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.output import Logprob, RequestOutput
from pagoda.server.dialects.openai.answers import Answer
from pagoda.server.dialects.openai.parameters import completion_max_tokens, sampling_params
from pagoda.server.dialects.openai.prompts import read_prompts
from pagoda.server.dialects.openai.schema import CompletionRequest
from pagoda.server.errors import not_supported
from pagoda.server.exchange import Exchange, encoder
from pagoda.server.generation import News
from pagoda.server.limits import Limits
from pagoda.server.service import Service
from pagoda.text import Tokenizer

DECODER = msgspec.json.Decoder(CompletionRequest)


async def completions(exchange: Exchange, service: Service) -> None:
    body = await exchange.read(DECODER)
    service.check_model(body.model)
    service.admission.check_room()
    if body.suffix:
        raise not_supported("suffix", "filling in before a suffix")
    sampling = text_sampling(body, exchange.limits)
    special = body.add_special_tokens is not False
    prompts = await read_prompts(body.prompt, service.reader, exchange.limits, special=special)
    for _, token_ids in prompts:
        service.check_length(len(token_ids))
    await TextAnswer(service, body).send(exchange, prompts, sampling)


def text_sampling(body: CompletionRequest, limits: Limits) -> SamplingParams:
    more: dict[str, Any] = {"max_tokens": completion_max_tokens(body), "logprobs": body.logprobs}
    if body.echo and body.logprobs is not None:
        more["prompt_logprobs"] = body.logprobs
        body.prompt_logprobs = None
    return sampling_params(body, limits, **more)


class TextAnswer(Answer[CompletionRequest]):
    prefix = "cmpl"
    whole_kind = chunk_kind = "text_completion"

    def __init__(self, service: Service, body: CompletionRequest) -> None:
        super().__init__(service, body)
        self._scores: dict[tuple[int, int], TextScores] = {}  # of streamed answers, by prompt and index

    @property
    def counts_answer(self) -> bool:
        """With max_tokens 0 the token that the engine drew is nobody's business."""
        return self.body.max_tokens != 0

    def choice(self, number: int, output: RequestOutput, index: int) -> dict[str, Any]:
        answer = output.outputs[index]
        news = News(answer.text, answer.token_ids, answer.logprobs or [], answer.finish_reason, answer.stop_reason)
        return self._choice(number, output, index, news)

    def news(self, number: int, output: RequestOutput, index: int, news: News) -> list[bytes]:
        return [encoder.encode(self._choice(number, output, index, news))]

    def _choice(self, number: int, output: RequestOutput, index: int, news: News) -> dict[str, Any]:
        """An answer, or the next piece of one; with `echo` the prompt stands before the first."""
        scores = self._scores.get((number, index))
        is_first = scores is None
        if scores is None:
            scores = self._scores[number, index] = TextScores(self.service.tokenizer, self.body.logprobs or 0)
        text = ""
        if is_first and self.body.echo:
            text = self._prompt_text(output)
            for token_id, found in zip(output.prompt_token_ids, output.prompt_logprobs or [], strict=False):
                scores.add(token_id, found)
        if self.counts_answer:
            text += news.text
            for token_id, found in zip(news.token_ids, news.logprobs, strict=False):
                scores.add(token_id, found)
        finish_reason = news.finish_reason
        if finish_reason is not None and not self.counts_answer:
            finish_reason = "length"
        token_ids: dict[str, Any] = {}
        if self.body.return_token_ids:
            token_ids["token_ids"] = news.token_ids if self.counts_answer else []
            if is_first:
                token_ids["prompt_token_ids"] = output.prompt_token_ids
        return {
            "index": number * len(output.outputs) + index,
            "text": text,
            "logprobs": None if self.body.logprobs is None else scores.take(),
            "finish_reason": finish_reason,
            "stop_reason": news.stop_reason if self.counts_answer else None,
            **token_ids,
        }

    def _prompt_text(self, output: RequestOutput) -> str:
        return output.prompt if output.prompt is not None else self.service.tokenizer.decode(output.prompt_token_ids)


class TextScores:
    """The four parallel lists of the old API. Offsets count from the beginning of the whole text."""

    def __init__(self, tokenizer: Tokenizer, most: int) -> None:
        self._tokenizer = tokenizer
        self._most = most
        self._offset = 0
        self._fields = self._none()

    def add(self, token_id: int, found: dict[int, Logprob] | None) -> None:
        text = self._text(token_id)
        own, best = None, None
        if found is not None:
            own = found[token_id].logprob
            ranked = sorted(found.items(), key=lambda item: item[1].rank)
            best = {self._text(other): score.logprob for other, score in ranked[: self._most]} | {text: own}
        for name, value in (
            ("tokens", text),
            ("token_logprobs", own),
            ("top_logprobs", best),
            ("text_offset", self._offset),
        ):
            self._fields[name].append(value)
        self._offset += len(text)

    def take(self) -> dict[str, list[Any]]:
        """All that was added since the last time."""
        taken, self._fields = self._fields, self._none()
        return taken

    def _none(self) -> dict[str, list[Any]]:
        return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}

    def _text(self, token_id: int) -> str:
        return self._tokenizer.decode([token_id], continues_text=True)
