"""Who waits, and who is next. A policy is a queue class; the scheduler never asks which one it has."""

from __future__ import annotations

import heapq

from pagoda.core.config import SchedulerConfig
from pagoda.scheduler.sequence import Rank, Sequence


class WaitingQueue:
    """Sequences in the order of their ranks. Whoever was pushed back keeps its rank, and so its place."""

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, int]] = []
        self._waiting: dict[int, Sequence] = {}

    def rank(self, arrival: int, sample_index: int, priority: int) -> Rank:
        """Smaller runs sooner and is pushed back later."""
        raise NotImplementedError

    def may_displace(self, waiting: Sequence, running: Sequence) -> bool:
        """Whether a waiting sequence may push back a running one to get its place."""
        raise NotImplementedError

    def push(self, sequence: Sequence) -> None:
        heapq.heappush(self._heap, (sequence.rank, sequence.number))
        self._waiting[sequence.number] = sequence

    def peek(self) -> Sequence | None:
        while self._heap and self._heap[0][1] not in self._waiting:
            heapq.heappop(self._heap)  # it was discarded
        return self._waiting[self._heap[0][1]] if self._heap else None

    def pop(self) -> Sequence:
        sequence = self.peek()
        if sequence is None:
            raise IndexError("pop from an empty queue")
        heapq.heappop(self._heap)
        del self._waiting[sequence.number]
        return sequence

    def discard(self, sequence: Sequence) -> None:
        del self._waiting[sequence.number]
        if len(self._heap) > 2 * len(self._waiting) + 64:
            self._heap = [(waiting.rank, number) for number, waiting in self._waiting.items()]
            heapq.heapify(self._heap)

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.number in self._waiting


class FirstComeQueue(WaitingQueue):
    """By arrival; nobody is displaced for a newcomer."""

    def rank(self, arrival: int, sample_index: int, priority: int) -> Rank:
        return (0, arrival, sample_index)

    def may_displace(self, waiting: Sequence, running: Sequence) -> bool:
        return False


class PriorityQueue(WaitingQueue):
    """By the request's priority (a smaller number first), then by arrival."""

    def rank(self, arrival: int, sample_index: int, priority: int) -> Rank:
        return (priority, arrival, sample_index)

    def may_displace(self, waiting: Sequence, running: Sequence) -> bool:
        return waiting.rank[0] < running.rank[0]


def make_queue(config: SchedulerConfig) -> WaitingQueue:
    return PriorityQueue() if config.policy == "priority" else FirstComeQueue()
