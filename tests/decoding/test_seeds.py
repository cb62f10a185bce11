from __future__ import annotations

from pagoda.core.sampling_params import SamplingParams
from pagoda.decoding.seeds import SeedSource


def test_a_request_keeps_its_own_seed() -> None:
    assert SeedSource().seed_for(SamplingParams(seed=-7)) == -7
    assert SeedSource(3).seed_for(SamplingParams(seed=0)) == 0


def test_a_drawn_seed_can_be_given_back() -> None:
    for source in (SeedSource(), SeedSource(5)):
        for _ in range(100):
            seed = source.seed_for(SamplingParams())
            assert SamplingParams(seed=seed).seed == seed


def test_unseeded_requests_differ() -> None:
    for source in (SeedSource(), SeedSource(5)):
        assert len({source.seed_for(SamplingParams()) for _ in range(1000)}) == 1000


def test_an_engine_seed_fixes_the_row_of_seeds() -> None:
    first, second, other = SeedSource(5), SeedSource(5), SeedSource(6)
    seeds = [first.seed_for(SamplingParams()) for _ in range(5)]
    assert [second.seed_for(SamplingParams()) for _ in range(5)] == seeds
    assert [other.seed_for(SamplingParams()) for _ in range(5)] != seeds
