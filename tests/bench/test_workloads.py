from __future__ import annotations

import random

import pytest

from pagoda.bench.workloads import FIXED, TokenRequest, decode256, nano, prefix, seed, single, ttft1k


def test_seed_draws_length_then_ids_then_answer() -> None:
    """Written out once more, draw by draw."""
    rng = random.Random(7)
    expected = []
    for _ in range(50):
        length = max(32, int(rng.gauss(500, 100)))
        ids = [rng.randrange(10, 100000) for _ in range(length)]
        expected.append(TokenRequest(ids, max(16, int(rng.gauss(200, 50)))))
    assert seed(50) == expected
    assert seed()[:50] == expected


def test_nano_draws_length_then_ids_then_answer() -> None:
    rng = random.Random(7)
    expected = []
    for _ in range(20):
        length = rng.randint(100, 1024)
        ids = [rng.randrange(10, 100000) for _ in range(length)]
        expected.append(TokenRequest(ids, rng.randint(100, 1024)))
    assert nano()[:20] == expected


def test_prefix_draws_the_shared_part_first() -> None:
    rng = random.Random(7)
    drawn = [rng.randrange(10, 100000) for _ in range(2048 + 2 * 128)]
    first, second = prefix()[:2]
    assert first.prompt_token_ids == drawn[: 2048 + 128]
    assert second.prompt_token_ids == drawn[:2048] + drawn[2048 + 128 :]


@pytest.mark.parametrize(
    ("made", "num_requests", "num_prompt", "max_tokens"),
    [(decode256(), 256, 128, 512), (single(), 1, 128, 256), (ttft1k(), 1, 1024, 1), (prefix(), 256, 2176, 128)],
)
def test_sizes(made: list[TokenRequest], num_requests: int, num_prompt: int, max_tokens: int) -> None:
    assert len(made) == num_requests
    assert {len(request.prompt_token_ids) for request in made} == {num_prompt}
    assert {request.max_tokens for request in made} == {max_tokens}


def test_counts_of_the_varied_ones() -> None:
    assert len(seed()) == 1000 and len(nano()) == 256


@pytest.mark.parametrize("name", FIXED)
def test_a_smaller_vocabulary_bounds_the_ids(name: str) -> None:
    requests = FIXED[name](2, end_of_ids=1000)
    assert all(10 <= token < 1000 for request in requests for token in request.prompt_token_ids)
