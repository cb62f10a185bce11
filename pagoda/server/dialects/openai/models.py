"""GET /v1/models, and what tells one model from another: tokenizing and back."""

from __future__ import annotations

import msgspec

from pagoda.server.dialects.openai.prompts import off_loop, read_conversation
from pagoda.server.dialects.openai.schema import DetokenizeRequest, TokenizeRequest
from pagoda.server.errors import bad_request
from pagoda.server.exchange import Exchange
from pagoda.server.service import Service

TOKENIZE = msgspec.json.Decoder(TokenizeRequest)
DETOKENIZE = msgspec.json.Decoder(DetokenizeRequest)


async def list_models(exchange: Exchange, service: Service) -> None:
    await exchange.json({"object": "list", "data": [service.describe_model()]})


async def show_model(exchange: Exchange, service: Service) -> None:
    service.check_model(exchange.path_parameter("model"))
    await exchange.json(service.describe_model())


async def tokenize(exchange: Exchange, service: Service) -> None:
    body = await exchange.read(TOKENIZE)
    service.check_model(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("prompt", "give either prompt or messages")
    tokenizer = service.tokenizer
    most_bytes = service.max_model_len * exchange.limits.max_prompt_bytes_per_token
    if body.messages is not None:
        _, token_ids = await read_conversation(body, service.reader, exchange.limits)
    else:
        text, special = body.prompt or "", body.add_special_tokens is not False
        token_ids = await off_loop(len(text), lambda: tokenizer.encode(text, special, max_bytes=most_bytes))
    pieces = [tokenizer.id_to_piece(token_id) for token_id in token_ids] if body.return_token_strs else None
    await exchange.json(
        {
            "count": len(token_ids),
            "max_model_len": service.max_model_len,
            "tokens": token_ids,
            "token_strs": pieces,
        }
    )


async def detokenize(exchange: Exchange, service: Service) -> None:
    body = await exchange.read(DETOKENIZE)
    service.check_model(body.model)
    vocab_size = service.tokenizer.vocab_size
    if body.tokens and max(body.tokens) >= vocab_size:
        number = next(number for number, token_id in enumerate(body.tokens) if token_id >= vocab_size)
        message = f"{body.tokens[number]} is no token; ids go from 0 to {vocab_size - 1}"
        raise bad_request(f"tokens[{number}]", message)
    text = await off_loop(len(body.tokens), lambda: service.tokenizer.decode(body.tokens))
    await exchange.json({"prompt": text})
