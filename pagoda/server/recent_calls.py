"""Which answer a request id belongs to, for a while: the id is the caller's, the answer's name is ours."""

from __future__ import annotations

MOST_CALLS = 10_000


class RecentCalls:
    """The last calls. A request id that came again stands for the newest of them."""

    def __init__(self, most: int = MOST_CALLS) -> None:
        self._names: dict[str, str] = {}
        self._most = most

    def note(self, request_id: str, name: str) -> None:
        self._names.pop(request_id, None)
        self._names[request_id] = name
        if len(self._names) > self._most:
            del self._names[next(iter(self._names))]

    def name_of(self, request_id: str) -> str:
        """The answer's name; the id itself where none is known, as it may be a name already."""
        return self._names.get(request_id, request_id)
