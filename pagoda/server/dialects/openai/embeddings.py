"""POST /v1/embeddings: each input as one vector of length one."""

from __future__ import annotations

import asyncio
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
from pagoda.server.exchange import Exchange, encoder
from pagoda.server.generation import Job
from pagoda.server.limits import check_count
from pagoda.server.service import Service

DECODER = msgspec.json.Decoder(EmbeddingRequest)


async def embeddings(exchange: Exchange, service: Service) -> None:
    body = await exchange.read(DECODER)
    service.check_model(body.model)
    if body.dimensions is not None:
        raise not_supported("dimensions", "a length other than the model's own")
    limits = exchange.limits
    prompts = await read_prompts(body.input, service.reader, limits.max_embedding_inputs, field="input")
    for _, token_ids in prompts:
        service.check_length(len(token_ids), field="input")
    check_count("input", sum(len(token_ids) for _, token_ids in prompts), limits.max_embedding_tokens, "tokens")
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
    vectors = await exchange.while_listening(encode_all(outputs, body.encoding_format))
    await exchange.json(answer(outputs, service.model_name, vectors))


async def encode_all(outputs: list[RequestOutput], encoding: str) -> list[msgspec.Raw]:
    """A million numbers take a while to write down: others have their turn in between, and no more than one vector is
    ever there as numbers of Python's."""
    vectors = []
    for index, output in enumerate(outputs):
        one = {"object": "embedding", "index": index, "embedding": encoded(output, encoding)}
        vectors.append(msgspec.Raw(encoder.encode(one)))
        await asyncio.sleep(0)
    return vectors


def answer(outputs: list[RequestOutput], model: str, vectors: list[msgspec.Raw]) -> dict[str, Any]:
    num_tokens = sum(len(output.prompt_token_ids) for output in outputs)
    return {
        "object": "list",
        "model": model,
        "data": vectors,
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
