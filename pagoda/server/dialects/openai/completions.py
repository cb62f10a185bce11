"""POST /v1/completions: text in, text on; with `echo` it also scores a prompt."""

from __future__ import annotations

from typing import Any

import msgspec

from pagoda.core.sampling_defaults import SamplingDefaults
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.output import Logprob, RequestOutput
from pagoda.server.dialects.openai.answers import Answer, Prompt
from pagoda.server.dialects.openai.parameters import completion_max_tokens, sampling_params
from pagoda.server.dialects.openai.prompts import read_fill_in, read_prompts
from pagoda.server.dialects.openai.schema import CompletionRequest
from pagoda.server.errors import bad_request
from pagoda.server.exchange import Exchange, encoder
from pagoda.server.generation import News
from pagoda.server.limits import Limits
from pagoda.server.service import Service
from pagoda.text import Tokenizer
from pagoda.text.fill_in import NO_FILL_IN

DECODER = msgspec.json.Decoder(CompletionRequest)
# Most of a stream, as `_choice` has it.
CHOICE = b'{"index":%d,"text":%b,"logprobs":null,"finish_reason":%b,"stop_reason":%b}'


async def completions(exchange: Exchange, service: Service) -> None:
    body = await exchange.read(DECODER)
    service.check_model(body.model)
    service.admission.check_room()
    if body.suffix:
        check_suffix(body, service)
    sampling = text_sampling(body, exchange.limits, service.sampling_defaults)
    shown, prompts = await read_texts(body, service, exchange.limits)
    for _, token_ids in prompts:
        service.check_length(len(token_ids), field="prompt")
    await TextAnswer(service, body, shown).send(exchange, prompts, sampling)


def check_suffix(body: CompletionRequest, service: Service) -> None:
    fill_in = service.tokenizer.fill_in
    if not fill_in.is_complete:
        raise bad_request("suffix", NO_FILL_IN, "unsupported_parameter")
    if not body.ignore_eos:
        body.stop_token_ids = [*(body.stop_token_ids or ()), *fill_in.end_ids()]


async def read_texts(body: CompletionRequest, service: Service, limits: Limits) -> tuple[list[slice], list[Prompt]]:
    """The prompts, and which of their tokens are the text that `echo` repeats: with a suffix, what stands before the
    hole, and neither the suffix nor the tokens that frame the two."""
    special = body.add_special_tokens is not False
    if not body.suffix:
        prompts = await read_prompts(body.prompt, service.reader, limits.max_prompts, special=special)
        return [slice(None)] * len(prompts), prompts
    framed = await read_fill_in(body.prompt, body.suffix, service.reader, limits.max_prompts, special)
    return [one.before for one in framed], [(one.text, one.token_ids) for one in framed]


def text_sampling(body: CompletionRequest, limits: Limits, defaults: SamplingDefaults) -> SamplingParams:
    more: dict[str, Any] = {"max_tokens": completion_max_tokens(body), "logprobs": body.logprobs}
    if body.echo and body.logprobs is not None:
        more["prompt_logprobs"] = body.logprobs
        body.prompt_logprobs = None
    return sampling_params(body, limits, defaults, **more)


class TextAnswer(Answer[CompletionRequest]):
    prefix = "cmpl"
    whole_kind = chunk_kind = "text_completion"

    def __init__(self, service: Service, body: CompletionRequest, shown: list[slice]) -> None:
        super().__init__(service, body)
        self._shown = shown  # of each prompt's tokens
        self._is_plain = body.logprobs is None and not body.return_token_ids and self.counts_answer
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
        is_begun = not self.body.echo or (number, index) in self._scores
        if not (is_begun and self._is_plain):
            return [encoder.encode(self._choice(number, output, index, news))]
        text, reason, stop = map(encoder.encode, (news.text, news.finish_reason, news.stop_reason))
        return [CHOICE % (number * len(output.outputs) + index, text, reason, stop)]

    def _choice(self, number: int, output: RequestOutput, index: int, news: News) -> dict[str, Any]:
        """An answer, or the next piece of one; with `echo` the prompt stands before the first."""
        scores = self._scores.get((number, index))
        is_first = scores is None
        if scores is None:
            scores = self._scores[number, index] = TextScores(self.service.tokenizer, self.body.logprobs or 0)
        text = ""
        if is_first and self.body.echo:
            shown = self._shown[number]
            token_ids = output.prompt_token_ids[shown]
            text = output.prompt if output.prompt is not None else self.service.tokenizer.decode(token_ids)
            for token_id, found in zip(token_ids, (output.prompt_logprobs or [])[shown], strict=False):
                scores.add(token_id, found)
        if self.counts_answer:
            text += news.text
            for token_id, found in zip(news.token_ids, news.logprobs, strict=False):
                scores.add(token_id, found)
        finish_reason = news.finish_reason
        if finish_reason is not None and not self.counts_answer:
            finish_reason = "length"
        more: dict[str, Any] = {}
        if self.body.return_token_ids:
            more["token_ids"] = news.token_ids if self.counts_answer else []
            if is_first:
                more["prompt_token_ids"] = output.prompt_token_ids
        return {
            "index": number * len(output.outputs) + index,
            "text": text,
            "logprobs": None if self.body.logprobs is None else scores.take(),
            "finish_reason": finish_reason,
            "stop_reason": news.stop_reason if self.counts_answer else None,
            **more,
        }


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
        return self._tokenizer.token_text(token_id)
