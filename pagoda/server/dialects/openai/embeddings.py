"""POST /v1/embeddings: each input as one vector of length one."""

from __future__ import annotations

import base64
import uuid
from typing import Any

import msgspec

from pagoda.core.errors import PagodaError
from pagoda.core.sampling_params import SamplingParams
from pagoda.engine.output import RequestOutput
from pagoda.server.deadlines import deadline_of
from pagoda.server.dialects.openai.prompts import named, read_prompts
from pagoda.server.dialects.openai.schema import EmbeddingRequest
from pagoda.server.errors import not_supported
from pagoda.server.exchange import Exchange
from pagoda.server.generation import Job
from pagoda.server.service import Service

DECODER = msgspec.json.Decoder(EmbeddingRequest)


async def embeddings(exchange: Exchange, service: Service) -> None:
    body = await exchange.read(DECODER)
    service.check_model(body.model)
    if body.dimensions is not None:
        raise not_supported("dimensions", "a length other than the model's own")
    prompts = await read_prompts(body.input, service.reader, exchange.limits, field="input")
    for _, token_ids in prompts:
        service.check_length(len(token_ids), field="input")
    job = Job(
        name=f"embd-{uuid.uuid4().hex}",
        prompts=prompts,
        sampling=SamplingParams(max_tokens=1),
        key=exchange.key,
        priority=body.priority or 0,
        cache_salt=body.cache_salt or "",
        deadline=deadline_of(exchange, body.timeout, service.request_timeout),
        task="embed",
        pooling=body.pooling or "mean",
    )
    service.calls.note(exchange.request_id, job.name)
    try:
        outputs = await exchange.while_listening(service.generation.whole(job))
    except PagodaError as error:
        raise named(error, "input") from None
    await exchange.json(answer(outputs, service.model_name, body.encoding_format))


def answer(outputs: list[RequestOutput], model: str, encoding: str) -> dict[str, Any]:
    num_tokens = sum(len(output.prompt_token_ids) for output in outputs)
    return {
        "object": "list",
        "model": model,
        "data": [
            {"object": "embedding", "index": index, "embedding": encoded(output, encoding)}
            for index, output in enumerate(outputs)
        ],
        "usage": {
            "prompt_tokens": num_tokens,
            "total_tokens": num_tokens,
            "prompt_tokens_details": {"cached_tokens": sum(output.num_cached_tokens for output in outputs)},
        },
    }


def encoded(output: RequestOutput, encoding: str) -> str | list[float]:
    """Numbers, or the bytes of little-endian singles in base64, which is what OpenAI's own client asks for."""
    assert output.embedding is not None
    if encoding == "base64":
        return base64.b64encode(output.embedding.astype("<f4").tobytes()).decode()
    numbers: list[float] = output.embedding.tolist()
    return numbers
