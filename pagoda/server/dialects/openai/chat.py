"""POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

import msgspec

from pagoda.core.sampling_defaults import SamplingDefaults
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.output import Logprob, RequestOutput
from pagoda.server.dialects.openai.answers import Answer
from pagoda.server.dialects.openai.parameters import chat_max_tokens, check_chat, sampling_params
from pagoda.server.dialects.openai.prompts import read_conversation
from pagoda.server.dialects.openai.schema import ChatRequest
from pagoda.server.errors import bad_request
from pagoda.server.exchange import Exchange, encoder
from pagoda.server.generation import News
from pagoda.server.limits import Limits
from pagoda.server.service import Service

DECODER = msgspec.json.Decoder(ChatRequest)


async def chat_completions(exchange: Exchange, service: Service) -> None:
    body = await exchange.read(DECODER)
    service.check_model(body.model)
    service.admission.check_room()
    check_chat(body)
    sampling = chat_sampling(body, exchange.limits, service.sampling_defaults)
    variables = {**(body.chat_template_kwargs or {})}
    if body.reasoning_effort is not None:
        variables.setdefault("reasoning_effort", body.reasoning_effort)  # templates that know it make something of it
    prompt = await read_conversation(body, service.reader, exchange.limits, variables)
    service.check_length(len(prompt[1]))
    await ChatAnswer(service, body).send(exchange, [prompt], sampling)


def chat_sampling(body: ChatRequest, limits: Limits, defaults: SamplingDefaults) -> SamplingParams:
    num_logprobs = None
    if body.logprobs:
        num_logprobs = body.top_logprobs or 0
    elif body.top_logprobs:
        raise bad_request("top_logprobs", "needs logprobs to be true")
    more = {"max_tokens": chat_max_tokens(body), "logprobs": num_logprobs, "detokenize": True}
    return sampling_params(body, limits, defaults, **more)


class ChatAnswer(Answer[ChatRequest]):
    prefix = "chatcmpl"
    whole_kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def choice(self, number: int, output: RequestOutput, index: int) -> dict[str, Any]:
        answer = output.outputs[index]
        logprobs = answer.logprobs
        found = {"content": self._scores(answer.token_ids, logprobs)} if logprobs is not None else None
        return {
            "index": answer.index,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": found,
            "finish_reason": answer.finish_reason,
            "stop_reason": answer.stop_reason,
        } | ({"token_ids": answer.token_ids} if self.body.return_token_ids else {})

    def top_fields(self, output: RequestOutput) -> dict[str, Any]:
        return {"prompt_token_ids": output.prompt_token_ids} if self.body.return_token_ids else {}

    def opening(self, num_answers: int) -> list[bytes]:
        chunk = b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return [chunk % index for index in range(num_answers)]

    def news(self, number: int, output: RequestOutput, index: int, news: News) -> list[bytes]:
        choices = []
        if news.text or news.logprobs or (self.body.return_token_ids and news.token_ids):
            choices.append(self._delta(index, news))
        if news.finish_reason is not None:
            choices.append(self._end(index, news))
        return choices

    def _delta(self, index: int, news: News) -> bytes:
        scores = b"null"
        if news.logprobs:
            scores = encoder.encode({"content": self._scores(news.token_ids, news.logprobs)})
        text = encoder.encode(news.text)
        token_ids = b',"token_ids":' + encoder.encode(news.token_ids) if self.body.return_token_ids else b""
        chunk = b'{"index":%d,"delta":{"content":%b},"logprobs":%b,"finish_reason":null%b}'
        return chunk % (index, text, scores, token_ids)

    def _end(self, index: int, news: News) -> bytes:
        reason, stop = encoder.encode(news.finish_reason), encoder.encode(news.stop_reason)
        return b'{"index":%d,"delta":{},"logprobs":null,"finish_reason":%b,"stop_reason":%b}' % (index, reason, stop)

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
