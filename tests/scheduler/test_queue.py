from __future__ import annotations

import random

import pytest

from pagoda.core.config import SchedulerConfig
from pagoda.scheduler import Submit
from pagoda.scheduler.queue import FirstComeQueue, PriorityQueue, WaitingQueue, make_queue
from pagoda.scheduler.sequence import Sequence


def waiting(queue: WaitingQueue, number: int, priority: int = 0, sample_index: int = 0) -> Sequence:
    event = Submit(request_id=f"r{number}", num_prompt_tokens=1, max_total_tokens=2, priority=priority)
    rank = queue.rank(number, sample_index, priority)
    sequence = Sequence(number, event, sample_index, number, rank, 1, [])
    queue.push(sequence)
    return sequence


def drained(queue: WaitingQueue) -> list[int]:
    return [queue.pop().number for _ in range(len(queue))]


def test_the_policy_names_the_queue() -> None:
    assert isinstance(make_queue(SchedulerConfig()), FirstComeQueue)
    assert isinstance(make_queue(SchedulerConfig(policy="priority")), PriorityQueue)


def test_first_come_ignores_priority() -> None:
    queue = FirstComeQueue()
    for number, priority in ((0, 9), (1, 0), (2, 5)):
        waiting(queue, number, priority)
    assert drained(queue) == [0, 1, 2]


def test_priority_first_then_arrival() -> None:
    queue = PriorityQueue()
    for number, priority in ((0, 9), (1, 0), (2, 5), (3, 0)):
        waiting(queue, number, priority)
    assert drained(queue) == [1, 3, 2, 0]


def test_who_is_pushed_back_gets_its_old_place() -> None:
    queue = FirstComeQueue()
    first = waiting(queue, 0)
    waiting(queue, 1)
    assert queue.pop() is first
    waiting(queue, 2)
    queue.push(first)
    assert drained(queue) == [0, 1, 2]


def test_only_a_smaller_priority_number_displaces() -> None:
    queue = PriorityQueue()
    low, high, same = waiting(queue, 0, 5), waiting(queue, 1, 1), waiting(queue, 2, 5)
    assert queue.may_displace(high, low)
    assert not queue.may_displace(low, high)
    assert not queue.may_displace(same, low)
    assert not FirstComeQueue().may_displace(high, low)


def test_the_discarded_never_come_up() -> None:
    queue = FirstComeQueue()
    everyone = [waiting(queue, number) for number in range(5)]
    queue.discard(everyone[0])
    queue.discard(everyone[3])
    assert everyone[0] not in queue and everyone[1] in queue
    assert len(queue) == 3
    assert drained(queue) == [1, 2, 4]
    assert queue.peek() is None
    with pytest.raises(IndexError):
        queue.pop()


def test_a_discarded_sequence_may_come_back() -> None:
    queue = FirstComeQueue()
    sequence = waiting(queue, 0)
    queue.discard(sequence)
    queue.push(sequence)
    assert drained(queue) == [0]


def test_discarding_leaves_no_heap_of_the_dead() -> None:
    queue = FirstComeQueue()
    for number in range(5000):
        sequence = waiting(queue, number)
        if number % 100:
            queue.discard(sequence)
    assert len(queue) == 50
    assert len(queue._heap) <= 2 * 50 + 65
    assert drained(queue) == list(range(0, 5000, 100))


def test_any_order_of_pushes_and_discards_agrees_with_sorting() -> None:
    rng = random.Random(3)
    queue = PriorityQueue()
    model: dict[int, Sequence] = {}
    for number in range(2000):
        model[number] = waiting(queue, number, rng.randrange(4))
        if rng.random() < 0.3:
            queue.discard(model.pop(rng.choice(list(model))))
        if rng.random() < 0.5 and model:
            best = min(model.values(), key=lambda sequence: sequence.rank)
            assert queue.peek() is best
            assert queue.pop() is model.pop(best.number)
    assert drained(queue) == [s.number for s in sorted(model.values(), key=lambda s: s.rank)]
