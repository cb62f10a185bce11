from __future__ import annotations

from pagoda.server.keys import ApiKey
from pagoda.server.sessions import MAX_SESSIONS, SESSION_SECONDS, Sessions


def test_a_session_stands_for_its_key_until_it_ends():
    now = 100.0
    sessions = Sessions(lambda: now)
    key = ApiKey("a")
    name, other = sessions.begin(key), sessions.begin(ApiKey("b"))
    assert sessions.find(name) is key and name != other and len(name) >= 40
    assert sessions.find("") is None and sessions.find(name[:-1]) is None
    now += SESSION_SECONDS - 1
    assert sessions.find(name) is key
    now += 2
    assert sessions.find(name) is None
    sessions.end("never heard of")


def test_signing_out_ends_one_session():
    sessions = Sessions()
    first, second = sessions.begin(ApiKey("a")), sessions.begin(ApiKey("a"))
    sessions.end(first)
    assert sessions.find(first) is None and sessions.find(second) is not None


def test_the_oldest_makes_room():
    sessions = Sessions()
    names = [sessions.begin(ApiKey("a")) for _ in range(MAX_SESSIONS + 1)]
    assert sessions.find(names[0]) is None
    assert all(sessions.find(name) is not None for name in names[1:])
