"""The playground in a browser: a chat with the tiny model, and answers made up to be awkward."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.server.paced import PacedServer
from tests.server.web.conftest import NARROW, OpenPage, overflow, wait_until

HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"> <script>document.title='owned'</script> [a](javascript:alert(1))"
)


def ask(page: Any, text: str = "the engine plans") -> None:
    page.fill("#message", text)
    page.keyboard.press("Enter")


def set_fields(page: Any, **fields: object) -> None:
    for name, value in fields.items():
        page.fill(f"[name={name}]", str(value))


def chunk(**fields: Any) -> str:
    choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": None} | fields
    return f"data: {json.dumps({'choices': [choice]})}\n\n"


def scored(text: str, logprob: float = -0.1) -> dict[str, Any]:
    data = text.encode()
    own = {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}
    return own | {"top_logprobs": [own, {"token": HOSTILE, "logprob": -3.0, "bytes": list(HOSTILE.encode())}]}


def without_end(request: Any) -> str:
    return json.dumps(request.post_data_json | {"ignore_eos": True})


def answer_with(page: Any, text: str, end: str = "data: [DONE]\n\n") -> None:
    """Let the server answer with this text, a token for every word."""
    words = re.findall(r"\s*\S+\s*$|\s*\S+|\s+", text)
    assert "".join(words) == text
    events = [chunk(delta={"content": word}, logprobs={"content": [scored(word)]}) for word in words]
    body = "".join(events) + chunk(finish_reason="stop") + end
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=body, content_type="text/event-stream"))


@pytest.fixture
def page(open_page: OpenPage) -> Iterator[Any]:
    yield open_page("/playground")


def test_an_answer_streams_and_tells_what_it_cost(page: Any, server: PacedServer):
    set_fields(page, max_tokens=30, temperature=0)
    with server.at_pace(0.02):  # or all of it could come at once, and no speed be seen
        ask(page)
        page.wait_for_selector(".message.assistant:not([aria-busy]) .notes button")
    notes = page.locator(".notes").inner_text()
    assert re.search(r"\d+ prompt tokens", notes) and re.search(r"first after [\d.]+ m?s", notes)
    speed = re.search(r"([\d.,]+) tokens a second", notes)
    assert speed is not None and 0 < float(speed[1].replace(",", "")) < 1000, "a token in twenty milliseconds"
    assert page.locator(".message.user").inner_text() == "the engine plans"
    assert page.locator(".token").count() > 3


def test_empty_fields_show_what_the_models_files_recommend(open_page: OpenPage):
    page = open_page("/playground")
    assert page.locator("[name=temperature]").get_attribute("placeholder") == "1"
    model = {"id": "tiny", "default_sampling_params": {"temperature": 0.6000000238418579, "top_k": 20, "odd": 1}}
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": [model]}))
    page.reload()
    page.wait_for_selector("[name=temperature][placeholder='0.6']")
    assert page.locator("[name=top_k]").get_attribute("placeholder") == "20"
    assert page.locator("[name=top_p]").get_attribute("placeholder") == "1"
    assert page.locator("[name=temperature]").input_value() == "", "the server's own default holds"


def test_what_comes_at_once_has_no_speed(page: Any):
    answer_with(page, "one two three")
    ask(page)
    page.wait_for_selector(".message.assistant:not([aria-busy]) .notes button")
    notes = page.locator(".notes").inner_text()
    assert "3 tokens" in notes and "first after" in notes and "a second" not in notes


def test_a_token_tells_how_likely_it_was(page: Any):
    set_fields(page, max_tokens=12, temperature=0)
    ask(page)
    page.wait_for_selector(".message.assistant:not([aria-busy]) .token")
    page.locator(".token").first.hover()
    shares = [float(share.strip("%<")) for share in page.locator(".odds .share").all_inner_texts()]
    assert len(shares) >= 5 and shares == sorted(shares, reverse=True) and sum(shares) <= 101
    assert page.locator(".odds .taken").count() == 1
    page.locator(".message.assistant .text").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator(".tip").is_visible() and page.locator(".token.chosen").count() >= 1
    page.keyboard.press("Escape")
    assert not page.locator(".tip").is_visible()


def test_the_answer_can_be_stopped(page: Any, server: PacedServer, client: httpx.Client):
    page.route("**/v1/chat/completions", lambda route: route.continue_(post_data=without_end(route.request)))
    set_fields(page, max_tokens=480, temperature=0)  # drawn at random, the first token may have no text to see
    with server.at_pace(0.05):  # or the answer could end before the browser has clicked
        ask(page)
        assert page.locator("#stop").is_visible() and not page.locator("#send").is_visible()
        page.wait_for_selector(".token")
        page.click("#stop")
        page.wait_for_selector(".message.assistant:not([aria-busy])")
        assert "stopped" in page.locator(".notes").inner_text()
        assert page.locator("#send").is_visible() and not page.locator("#stop").is_visible()
        deadline = time.monotonic() + 10  # all of the answer would take 24 seconds
        while client.get("/debug/state").json()["requests"]:
            assert time.monotonic() < deadline, "the engine still works for nobody"
            time.sleep(0.05)


def test_parameters_are_sent_and_remembered(page: Any):
    sent: list[dict[str, Any]] = []
    page.on("request", lambda asked: sent.append(asked.post_data_json) if asked.method == "POST" else None)
    set_fields(page, system="Be brief.", temperature=0.5, top_p=0.9, top_k=40, min_p=0.05, max_tokens=3, seed=7)
    set_fields(page, repetition_penalty=1.1, presence_penalty=0.5, frequency_penalty=-0.5, stop="END")
    ask(page, "first")
    page.wait_for_selector(".message.assistant:not([aria-busy]) .notes button")
    ask(page, "second")
    wait_until(page, "document.querySelectorAll('.message.assistant:not([aria-busy])').length === 2")
    body = sent[-1]
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user"]
    expected = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "max_tokens": 3, "seed": 7}
    expected |= {"repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": -0.5, "stop": "END"}
    assert body.items() >= expected.items() and body["logprobs"] is True and body["top_logprobs"] == 5
    page.reload()
    assert page.input_value("[name=top_k]") == "40" and page.input_value("[name=system]") == "Be brief."
    page.click("#parameters [type=reset]")
    page.uncheck("[name=logprobs]")
    set_fields(page, max_tokens=2)
    ask(page, "third")
    page.wait_for_selector(".message.assistant:not([aria-busy])")
    assert sent[-1].keys() == {"messages", "max_tokens", "stream", "stream_options"}


def test_an_error_is_shown_and_can_be_tried_again(page: Any):
    set_fields(page, seed=10**30)
    ask(page)
    problem = page.locator(".problem")
    assert "refused (400" in problem.inner_text() and "seed" in problem.inner_text()
    set_fields(page, seed=1, max_tokens=2)
    page.locator(".notes button", has_text="try again").click()
    page.wait_for_selector(".message.assistant:not([aria-busy]) .text:not([hidden])")
    assert page.locator(".problem").count() == 0 and page.locator(".message").count() == 2


def test_wrong_numbers_are_not_sent(page: Any):
    set_fields(page, temperature=3)
    ask(page)
    assert page.locator(".message").count() == 0


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        ('data: {"error": {"message": "the engine stopped", "code": "engine_stopped"}}\n\n', "the engine stopped"),
        ("", "the connection ended before the answer did"),
    ],
)
def test_half_an_answer_never_looks_whole(page: Any, end: str, shown: str):
    answer_with(page, "half an answer", end)
    ask(page)
    page.wait_for_selector(".problem")
    assert shown in page.locator(".problem").inner_text() and "broke off" in page.locator(".problem").inner_text()
    assert page.locator(".text").inner_text() == "half an answer"


def test_what_a_model_writes_is_text(page: Any):
    text = f"# {HOSTILE}\n\n{HOSTILE}\n\n- **{HOSTILE}**\n\n```\n{HOSTILE}\n```"
    answer_with(page, text)
    ask(page, HOSTILE)
    page.wait_for_selector(".message.assistant:not([aria-busy]) pre")
    assert page.locator(".message.user").inner_text() == HOSTILE
    assert page.locator(".message :is(img, script, a, iframe)").count() == 0
    assert page.locator(".text pre").inner_text() == HOSTILE
    assert HOSTILE in page.locator(".text p").inner_text()
    page.locator(".token").first.hover()
    assert "onerror" in page.locator(".odds").inner_text() and page.locator(".odds img").count() == 0
    assert page.title() == "Playground · Pagoda"


def test_the_browser_itself_refuses_markup(browser: Any, server: PacedServer):
    page = browser.new_page()
    page.goto(f"{server.url}/playground")
    refused = "try { document.body.innerHTML = '<b>x</b>'; 'taken' } catch (error) { error.name }"
    assert page.evaluate(refused) == "TypeError"
    page.close()


MARKDOWN = """# Title

Some **bold** and *slanted* text with `code` in it,
on two lines. 2 * 3 * 4 = 24, snake_case_name.

1. one
2. two
   - nested

> quoted

```python
a = "<b>"

print(a)
```"""


def test_a_little_markdown(page: Any):
    answer_with(page, MARKDOWN)
    ask(page)
    page.wait_for_selector(".message.assistant:not([aria-busy])")
    found = {
        tag: page.locator(f".text {tag}").all_inner_texts() for tag in ("h3", "strong", "em", "p code", "li", "pre")
    }
    assert found["h3"] == ["Title"] and found["strong"] == ["bold"] and found["em"] == ["slanted"]
    assert found["p code"] == ["code"] and found["li"] == ["one", "two", "nested"]
    assert found["pre"] == ['a = "<b>"\n\nprint(a)']
    assert "2 * 3 * 4 = 24, snake_case_name." in page.locator(".text p").first.inner_text()


def test_tokens_may_end_inside_a_character(page: Any):
    data = "naïve 🙂 ok".encode()
    pieces = [data[:3], data[3:4], data[4:9], data[9:11], data[11:]]
    texts = ["na", "ï", "ve ", "", "🙂 ok"]
    events = []
    for piece, text in zip(pieces, texts, strict=True):
        token = {"token": piece.decode("utf-8", "replace"), "logprob": -0.5, "bytes": list(piece), "top_logprobs": []}
        events.append(chunk(delta={"content": text}, logprobs={"content": [token]}))
    body = "".join(events) + chunk(finish_reason="stop") + "data: [DONE]\n\n"
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=body, content_type="text/event-stream"))
    ask(page)
    page.wait_for_selector(".message.assistant:not([aria-busy])")
    assert page.locator(".text").inner_text() == "naïve 🙂 ok"
    assert "".join(page.locator(".token").all_inner_texts()) == "naïve 🙂 ok"


def test_it_fits_a_phone(open_page: OpenPage):
    page = open_page("/playground", viewport=NARROW)
    assert overflow(page) == 0 and page.locator("#send").is_visible()
    answer_with(page, "a_very_long_word_" * 30 + "\n\n```\n" + "x" * 400 + "\n```")
    ask(page, "another_very_long_word_" * 30)
    page.wait_for_selector(".message.assistant:not([aria-busy])")
    assert overflow(page) == 0
    page.click("summary")
    assert page.locator("[name=temperature]").is_visible() and page.locator("#message").is_visible()
    assert overflow(page) == 0


def test_clearing_begins_anew(page: Any):
    set_fields(page, max_tokens=450)
    ask(page)
    page.wait_for_selector(".message.assistant")
    page.click("#clear")
    assert page.locator(".message").count() == 0 and page.locator("#welcome").is_visible()
    set_fields(page, max_tokens=2)
    ask(page, "again")
    page.wait_for_selector(".message.assistant:not([aria-busy])")
    assert page.locator(".message").count() == 2
