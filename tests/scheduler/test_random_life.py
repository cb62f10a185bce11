"""Scheduler and cache through random lives: integrity after every step, every read on paper, every plan replayed."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from pagoda.core.cache import CacheGroup
from pagoda.scheduler.decisions import Reason
from pagoda.scheduler.draft import plan_digest
from pagoda.scheduler.replay import replay, replayed_plans, scheduler_from
from tests.scheduler.random_life import FULL, WINDOW, RandomLife

DELAYS = (0, 1, 3)
DRAFTS = (0, 3)
POLICIES = ("fcfs", "priority")
GROUPS: tuple[tuple[CacheGroup, ...], ...] = ((FULL,), (FULL, WINDOW), (WINDOW,))
CACHING = (True, False)
LIVES = list(itertools.product(DELAYS, DRAFTS, POLICIES, GROUPS, CACHING))
NUM_DAILY_STEPS = 84  # 6,048 in all 72 lives
NUM_SLOW_STEPS = 1400  # 100,800 in all


def begin(index: int, seed: int) -> RandomLife:
    """One of the combinations, in a house of random size. Half of the logs are so short that they lose entries."""
    delay, num_drafts, policy, groups, caching = LIVES[index]
    rng = random.Random(seed)
    return RandomLife(
        seed=seed,
        delay=delay,
        num_drafts=num_drafts,
        policy=policy,
        groups=groups,
        caching=caching,
        num_pages=rng.choice([25, 40, 60, 100]),
        page_size=rng.choice([2, 4, 5, 8]),
        max_num_seqs=rng.choice([2, 4, 6, 12]),
        segment_entries=rng.choice([60, 1_000_000]),
    )


def live(life: RandomLife, num_steps: int) -> None:
    for step in range(num_steps):
        life.step(load=(0.7, 0.4, 0.1)[step // 25 % 3])  # crowded times and quiet ones
        life.scheduler.check_integrity()
    life.drain()
    life.scheduler.check_integrity()


def check_replay(life: RandomLife) -> None:
    log = life.log.as_file()
    digests = [plan_digest(plan) for _, plan in replayed_plans(log, scheduler_from(log))]
    assert digests == life.plans[len(life.plans) - len(digests) :]
    report = replay(log)
    assert not report.first_difference
    assert report.num_plans == len(digests) == len(life.plans) - log.state.step_id


@pytest.mark.parametrize("index", range(len(LIVES)))
def test_a_short_life(index: int) -> None:
    life = begin(index, seed=index)
    live(life, NUM_DAILY_STEPS)
    check_replay(life)


def test_short_lives_meet_with_every_reason() -> None:
    met: Counter[Reason] = Counter()
    for index in range(0, len(LIVES), 5):
        life = begin(index, seed=1000 + index)
        live(life, NUM_DAILY_STEPS)
        met += life.log.reasons
        assert life.device.num_reads > 1000
    assert set(met) == set(Reason)


def test_the_paper_device_sees_a_page_that_is_used_wrongly() -> None:
    life = RandomLife(seed=5)
    for _ in range(20):
        life.step()
    plan = life.scheduler.plan(life.time)
    row = int(plan.rows[0])
    page = life.device.rows[row].tables[0][0]
    life.device.cells[0][page, 0] += 1
    with pytest.raises(AssertionError, match="foreign tokens"):
        texts = {start.sequence: life.prompts[start.request_id] for start in plan.started}
        life.device.execute(plan, texts)


@pytest.mark.slow
def test_a_hundred_thousand_random_steps() -> None:
    met: Counter[Reason] = Counter()
    num_steps = 0
    for index in range(len(LIVES)):
        life = begin(index, seed=5000 + index)
        live(life, NUM_SLOW_STEPS)
        check_replay(life)
        met += life.log.reasons
        num_steps += NUM_SLOW_STEPS
    assert num_steps >= 100_000
    assert set(met) == set(Reason)
    print({reason.name: count for reason, count in met.items()})
