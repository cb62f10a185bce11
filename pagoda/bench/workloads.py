"""The fixed workloads that engines are compared with: the same token ids for everybody who runs them.

All are drawn from `random.Random(7)`. For each request in order the prompt's length is drawn first, where it varies,
then its ids, then the length of the answer. Prompts are token ids: no tokenizer stands between the draw and the engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

RANDOM_SEED = 7
FIRST_ID, END_OF_IDS = 10, 100_000
"""Ids below the first are often special tokens."""


@dataclass(frozen=True, slots=True)
class TokenRequest:
    prompt_token_ids: list[int]
    max_tokens: int
    """The answer has exactly so many tokens: end tokens are to be ignored."""


Ids = Callable[[int], list[int]]


def _ids(rng: random.Random, end_of_ids: int) -> Ids:
    return lambda count: [rng.randrange(FIRST_ID, end_of_ids) for _ in range(count)]


def seed(num_requests: int = 1000, end_of_ids: int = END_OF_IDS) -> list[TokenRequest]:
    """Prompts of about 500 tokens and answers of about 200, normally distributed."""
    rng = random.Random(RANDOM_SEED)
    ids = _ids(rng, end_of_ids)
    return [
        TokenRequest(ids(max(32, int(rng.gauss(500, 100)))), max(16, int(rng.gauss(200, 50))))
        for _ in range(num_requests)
    ]


def nano(num_requests: int = 256, end_of_ids: int = END_OF_IDS) -> list[TokenRequest]:
    """Prompts and answers of 100 to 1,024 tokens, each length as likely as any other."""
    rng = random.Random(RANDOM_SEED)
    ids = _ids(rng, end_of_ids)
    return [TokenRequest(ids(rng.randint(100, 1024)), rng.randint(100, 1024)) for _ in range(num_requests)]


def prefix(num_requests: int = 256, end_of_ids: int = END_OF_IDS) -> list[TokenRequest]:
    """2,048 tokens that all prompts begin with, 128 of each one's own, answers of 128."""
    ids = _ids(random.Random(RANDOM_SEED), end_of_ids)
    shared = ids(2048)
    return [TokenRequest(shared + ids(128), 128) for _ in range(num_requests)]


def decode256(num_requests: int = 256, end_of_ids: int = END_OF_IDS) -> list[TokenRequest]:
    """Short prompts of 128 and long answers of 512."""
    return _constant(num_requests, 128, 512, end_of_ids)


def single(num_requests: int = 1, end_of_ids: int = END_OF_IDS) -> list[TokenRequest]:
    """One stream: 128 in, 256 out."""
    return _constant(num_requests, 128, 256, end_of_ids)


def ttft1k(num_requests: int = 1, end_of_ids: int = END_OF_IDS) -> list[TokenRequest]:
    """The time to the first token: 1,024 in, one out."""
    return _constant(num_requests, 1024, 1, end_of_ids)


def _constant(num_requests: int, num_prompt: int, num_answer: int, end_of_ids: int) -> list[TokenRequest]:
    ids = _ids(random.Random(RANDOM_SEED), end_of_ids)
    return [TokenRequest(ids(num_prompt), num_answer) for _ in range(num_requests)]


FIXED: dict[str, Callable[..., list[TokenRequest]]] = {
    make.__name__: make for make in (seed, nano, prefix, decode256, single, ttft1k)
}
