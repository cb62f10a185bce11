from __future__ import annotations

from pagoda.server.recent_calls import RecentCalls


def test_the_newest_call_of_an_id_counts_and_old_ones_are_forgotten():
    calls = RecentCalls(most=2)
    calls.note("a", "chatcmpl-1")
    calls.note("b", "chatcmpl-2")
    calls.note("a", "chatcmpl-3")
    assert calls.name_of("a") == "chatcmpl-3"
    calls.note("c", "chatcmpl-4")
    assert calls.name_of("b") == "b", "forgotten: it may be a name itself"
    assert (calls.name_of("a"), calls.name_of("c")) == ("chatcmpl-3", "chatcmpl-4")
