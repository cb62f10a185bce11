"""Keys and what they may use."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pagoda.core.errors import InvalidRequest
from pagoda.server.errors import ApiError
from pagoda.server.keys import ApiKey, KeyEntry, KeyRing

SECRET = "a-secret-of-the-test"


def test_a_key_is_found_by_itself_or_by_its_hash():
    digest = hashlib.sha256(b"another-secret").hexdigest()
    ring = KeyRing([KeyEntry(name="a", key=SECRET), KeyEntry(name="b", sha256=digest)])
    assert ring.find(b"Bearer " + SECRET.encode(), b"").name == "a"
    assert ring.find(b"bearer  " + SECRET.encode(), b"").name == "a"
    assert ring.find(b"", b"another-secret").name == "b"
    for wrong in (b"", b"Bearer", b"Bearer ", b"Basic " + SECRET.encode(), b"Bearer " + SECRET.encode() + b"x"):
        with pytest.raises(ApiError) as caught:
            ring.find(wrong, b"")
        assert caught.value.status == 401 and SECRET not in str(caught.value)


def test_without_keys_everybody_may_call():
    ring = KeyRing([])
    assert ring.is_open and ring.find(b"", b"").name == ""


def test_requests_a_minute():
    key = ApiKey("a", requests_per_minute=2)
    key.enter(5, 100.0)
    key.enter(5, 130.0)
    with pytest.raises(ApiError, match="2 requests a minute") as caught:
        key.enter(5, 150.0)
    assert caught.value.status == 429 and caught.value.retry_after == pytest.approx(10.0)
    key.enter(5, 160.5)


def test_tokens_a_minute_count_answers_too():
    key = ApiKey("a", tokens_per_minute=100)
    key.enter(60, 0.0)
    key.spend(30, 1.0)
    with pytest.raises(ApiError, match="100 tokens a minute") as caught:
        key.enter(11, 2.0)
    assert caught.value.retry_after == pytest.approx(58.0)
    key.enter(10, 2.0)
    key.enter(60, 60.5)


def test_requests_at_once():
    key = ApiKey("a", max_concurrency=1)
    key.enter(1, 0.0)
    with pytest.raises(ApiError, match="1 requests at once"):
        key.enter(1, 0.0)
    key.leave()
    key.enter(1, 0.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[keys]]\nname = "a"\n', "needs either key or sha256"),
        ('[[keys]]\nname = "a"\nkey = "short"\n', "shorter than"),
        ('[[keys]]\nname = "a"\nsha256 = "xyz"\n', "64 hexadecimal"),
        ('[[keys]]\nname = "a"\nkey = "a-long-secret"\nrpm = 3\n', "unknown field"),
        ('[[keys]]\nname = "a"\nkey = "a-long-secret"\n[[keys]]\nname = "a"\nkey = "another-secret"\n', "twice"),
        ("keys = 3", "not a list of keys"),
        ("=", "not a list of keys"),
        ("keys = 'ÿ'", "not a list of keys"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str):
    path = tmp_path / "keys.toml"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(InvalidRequest, match=message) as caught:
        KeyRing.load(str(path), None)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_and_the_environment_go_together(tmp_path: Path):
    path = tmp_path / "keys.toml"
    path.write_text(f'[[keys]]\nname = "team"\nkey = "{SECRET}"\nrequests_per_minute = 7\n')
    ring = KeyRing.load(str(path), "from-the-environment")
    assert {key.name for key in ring.keys} == {"team", "environment"}
    assert ring.find(b"Bearer " + SECRET.encode(), b"").requests_per_minute == 7
    with pytest.raises(InvalidRequest, match="cannot be read"):
        KeyRing.load(str(tmp_path / "missing"), None)
