"""The numbers for Prometheus: every name with its type, and counts that are what was really done."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import OPTIONS
from tests.server.paced import PacedServer

ALICE, BOB = "the-key-of-alice", "the-key-of-bob"
KEYS = f"""
[[keys]]
name = "alice"
key = "{ALICE}"

[[keys]]
name = "bob"
key = "{BOB}"
requests_per_minute = 1
"""
CHAT = {"messages": [{"role": "user", "content": "the engine"}], "max_tokens": 5, "ignore_eos": True, "temperature": 0}
# vLLM's names for all that this server has.
PEERS = {
    "gauge": """num_requests_running num_requests_waiting num_requests_waiting_by_reason kv_cache_usage_perc
        cache_config_info""",
    "counter": """prefix_cache_queries prefix_cache_hits num_preemptions prompt_tokens prompt_tokens_by_source
        prompt_tokens_cached generation_tokens request_success""",
    "histogram": """iteration_tokens_total request_prompt_tokens request_generation_tokens
        request_max_num_generation_tokens request_params_n request_params_max_tokens request_prefill_kv_computed_tokens
        time_to_first_token_seconds inter_token_latency_seconds request_time_per_output_token_seconds
        e2e_request_latency_seconds request_queue_time_seconds request_inference_time_seconds
        request_prefill_time_seconds request_decode_time_seconds""",
}


@dataclass
class Scrape:
    families: dict[str, Metric]
    text: str

    def value(self, name: str, **labels: str) -> float:
        """The sum over all samples of that name with those labels."""
        return sum(
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


def scrape(server: PacedServer, key: str | None = ALICE) -> Scrape:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with server.client(headers=headers) as client:
        text = client.get("/metrics").text
    return Scrape({family.name: family for family in text_string_to_metric_families(text)}, text)


@pytest.fixture(scope="module")
def counted(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PacedServer]:
    keys = tmp_path_factory.mktemp("keys") / "keys.toml"
    keys.write_text(KEYS)
    with PacedServer(tiny_folder, *OPTIONS, "--api-keys-file", str(keys)) as running:
        running.wait_until_ready()
        yield running


@pytest.fixture
def alice(counted: PacedServer) -> Iterator[httpx.Client]:
    with counted.client(headers={"Authorization": f"Bearer {ALICE}"}) as client:
        yield client


def test_every_name_of_vllm_that_applies_is_there_with_its_type(counted: PacedServer):
    families = scrape(counted).families
    for kind, names in PEERS.items():
        for name in names.split():
            assert families[f"vllm:{name}"].type == kind, name
            assert families[f"vllm:{name}"].samples, name


def test_an_alias_has_the_numbers_of_our_own_name(counted: PacedServer, alice: httpx.Client):
    alice.post("/v1/chat/completions", json=CHAT).raise_for_status()
    found = scrape(counted)
    for own, peer in (
        ("pagoda_generated_tokens_total", "vllm:generation_tokens_total"),
        ("pagoda_request_seconds_sum", "vllm:e2e_request_latency_seconds_sum"),
        ("pagoda_step_tokens_count", "vllm:iteration_tokens_total_count"),
    ):
        assert found.value(own) == found.value(peer) > 0


def test_the_text_is_what_promtool_would_accept(counted: PacedServer):
    found = scrape(counted)
    own = [family for name, family in found.families.items() if name.startswith("pagoda_")]
    assert len(own) > 30
    assert len(re.findall(r"^# TYPE (\S+)", found.text, re.M)) == len(
        set(re.findall(r"^# TYPE (\S+)", found.text, re.M))
    )
    for family in own:
        assert family.documentation and re.fullmatch(r"[a-z][a-z0-9_]*", family.name), family.name
        assert not family.name.endswith(("_count", "_sum", "_bucket", "_total", "_info_total")), family.name
        assert not re.search(r"_(milliseconds|ms|minutes|kilobytes|megabytes|percent|perc)(_|$)", family.name)
        assert (family.type == "counter") == all(sample.name.endswith("_total") for sample in family.samples), family
        if family.type == "histogram":
            check_buckets(family)


def check_buckets(family: Metric) -> None:
    bounds: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = defaultdict(list)
    for sample in family.samples:
        if sample.name.endswith("_bucket"):
            rest = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
            bounds[rest].append((float(sample.labels["le"]), sample.value))
    [count] = [sample.value for sample in family.samples if sample.name.endswith("_count")]
    for pairs in bounds.values():
        assert pairs == sorted(pairs) and pairs[-1] == (float("inf"), count)
        assert [number for _, number in pairs] == sorted(number for _, number in pairs)


def test_the_counts_are_what_was_done(counted: PacedServer, alice: httpx.Client):
    before = scrape(counted)
    answers = [alice.post("/v1/chat/completions", json=CHAT).json() for _ in range(3)]
    two = alice.post("/v1/chat/completions", json=CHAT | {"n": 2, "max_tokens": 4}).json()
    text = answers[0]["choices"][0]["message"]["content"]
    stopped = alice.post("/v1/chat/completions", json=CHAT | {"stop": [text[:3]]}).json()
    assert stopped["choices"][0]["finish_reason"] == "stop"
    many = alice.post("/v1/completions", json={"prompt": ["a", "the"], "max_tokens": 2, "ignore_eos": True}).json()
    after = scrape(counted)

    def more(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    bodies = [*answers, two, stopped, many]
    usage = [body["usage"] for body in bodies]
    num_new = sum(each["completion_tokens"] for each in usage)
    assert more("pagoda_key_generated_tokens_total", key="alice") == num_new
    assert more("pagoda_key_prompt_tokens_total", key="alice") == sum(each["prompt_tokens"] for each in usage)
    assert more("pagoda_key_requests_total", key="alice") == 7
    assert more("pagoda_key_requests_total", key="bob") == 0
    assert more("vllm:prompt_tokens_total") == sum(each["prompt_tokens"] for each in usage)
    cached = sum(each["prompt_tokens_details"]["cached_tokens"] for each in usage)
    assert more("vllm:prompt_tokens_cached_total") == more("vllm:prefix_cache_hits_total") == cached
    assert more("vllm:prompt_tokens_by_source_total", source="local_cache_hit") == cached
    # The tokens of the stop string were drawn, too, and one more may have been under way.
    assert num_new <= more("vllm:generation_tokens_total") <= num_new + 1
    assert more("vllm:request_success_total", finished_reason="length") == 3 + 2 + 2
    assert more("vllm:request_success_total", finished_reason="stop") == 1
    for name in ("e2e_request_latency_seconds", "request_queue_time_seconds", "time_to_first_token_seconds"):
        assert more(f"vllm:{name}_count") == 7
    for name in ("request_prefill_time_seconds", "request_inference_time_seconds", "request_prompt_tokens"):
        assert more(f"vllm:{name}_count") == 7
    assert more("vllm:request_generation_tokens_count") == more("vllm:request_decode_time_seconds_count") == 8
    assert more("vllm:request_generation_tokens_sum") == num_new
    assert more("vllm:request_params_n_sum") == 3 + 2 + 1 + 2
    assert more("vllm:request_params_max_tokens_sum") == 5 * 4 + 4 + 2 * 2
    longest = 5 * 3 + 4 + stopped["usage"]["completion_tokens"] + 2 * 2
    assert more("vllm:request_max_num_generation_tokens_sum") == longest
    computed = sum(each["prompt_tokens"] for each in usage) - cached
    assert more("vllm:request_prefill_kv_computed_tokens_sum") == computed
    # Every answer has one token less than it has gaps between tokens.
    num_gaps = more("vllm:inter_token_latency_seconds_count")
    assert num_new - 8 <= num_gaps <= num_new - 8 + 1
    assert more("vllm:iteration_tokens_total_count") == more("pagoda_engine_steps_total") > 0
    assert more("vllm:iteration_tokens_total_sum") == more("pagoda_computed_tokens_total")
    assert more("pagoda_computed_tokens_total") >= computed + num_gaps
    assert after.value("pagoda_requests_open") == after.value("vllm:num_requests_running") == 0


def test_a_vector_is_a_request_without_tokens(counted: PacedServer, alice: httpx.Client):
    before = scrape(counted)
    usage = alice.post("/v1/embeddings", json={"input": ["the", "a"]}).json()["usage"]
    after = scrape(counted)
    for name, count in (
        ("vllm:request_success_total", 2),
        ("vllm:e2e_request_latency_seconds_count", 2),
        ("vllm:prompt_tokens_total", usage["prompt_tokens"]),
        ("pagoda_key_requests_total", 2),
        ("vllm:generation_tokens_total", 0),
        ("vllm:request_generation_tokens_count", 0),
        ("vllm:request_params_n_count", 0),
    ):
        assert after.value(name) - before.value(name) == count, name


def test_refusals_and_errors_are_counted_by_key_and_status(counted: PacedServer, alice: httpx.Client):
    before = scrape(counted)
    with counted.client(headers={"Authorization": f"Bearer {BOB}"}) as bob:
        statuses = [bob.post("/v1/chat/completions", json=CHAT).status_code for _ in range(3)]
    assert statuses == [200, 429, 429]
    assert alice.post("/v1/chat/completions", json={"messages": 3}).status_code == 400
    assert alice.get("/nowhere").status_code == 404
    after = scrape(counted)
    assert after.value("pagoda_key_refused_total", key="bob") - before.value("pagoda_key_refused_total", key="bob") == 2
    assert after.value("pagoda_key_requests_total", key="bob") == 1
    for status, count in (("429", 2), ("400", 1), ("404", 1)):
        name = "pagoda_requests_failed_total"
        assert after.value(name, status=status) - before.value(name, status=status) == count


def test_a_client_that_leaves_is_an_abort(counted: PacedServer, alice: httpx.Client):
    def ended(found: Scrape, *reasons: str) -> float:
        return sum(found.value("vllm:request_success_total", finished_reason=reason) for reason in reasons)

    before = scrape(counted)
    body = {"prompt": ["the"] * 20, "max_tokens": 400, "ignore_eos": True, "stream": True}
    with counted.at_pace(0.02), alice.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()  # held, for it closes the response when it goes
        next(lines)
        busy = scrape(counted)
    assert busy.value("pagoda_requests_open") == 20
    assert busy.value("vllm:num_requests_running") > 0 and busy.value("vllm:num_requests_waiting") > 0
    assert busy.value("vllm:kv_cache_usage_perc") > 0
    deadline = time.monotonic() + 10
    while scrape(counted).value("pagoda_requests_open") and time.monotonic() < deadline:
        time.sleep(0.02)
    after = scrape(counted)
    assert ended(after, "abort") > ended(before, "abort")
    assert ended(after, "abort", "length") - ended(before, "abort", "length") == 20


def test_an_engine_that_comes_back_counts_on(counted: PacedServer, alice: httpx.Client):
    alice.post("/v1/chat/completions", json=CHAT).raise_for_status()
    before = scrape(counted)
    engine = counted.children()["engine"]
    body = CHAT | {"stream": True, "n": 8, "max_tokens": 400}
    with counted.at_pace(0.02), alice.stream("POST", "/v1/chat/completions", json=body) as response:
        lines = response.iter_lines()
        next(lines)
        os.kill(engine, signal.SIGKILL)
        assert "error" in [line for line in lines if line][-1]
    counted.wait_until_ready()
    alice.post("/v1/chat/completions", json=CHAT).raise_for_status()
    after = scrape(counted)
    for name in ("pagoda_engine_restarts_total", "pagoda_engine_deaths_total"):
        assert after.value(name) - before.value(name) == 1
    assert after.value("pagoda_engine_steps_total") > before.value("pagoda_engine_steps_total")
    failed = [found.value("vllm:request_success_total", finished_reason="error") for found in (before, after)]
    assert failed[1] - failed[0] == body["n"]


def test_the_list_in_the_documentation_is_what_is_there(counted: PacedServer):
    found = scrape(counted)
    typed = dict(re.findall(r"^# TYPE (\S+) (\S+)", found.text, re.M))
    rows = re.findall(r"^\| `(\S+)` \| (?:`(\S+)`)? ?\| (\w+) \|", Path("docs/metrics.md").read_text(), re.M)
    listed = {name: kind for own, peer, kind in rows for name in (own, peer) if name}
    assert listed == typed


def test_plan_and_actual_stand_beside_each_other(counted: PacedServer):
    found = scrape(counted)
    for line in ("weights", "pages", "workspace", "logits", "rows"):
        planned = found.value("pagoda_memory_planned_bytes", line=line)
        assert planned == found.value("pagoda_memory_allocated_bytes", line=line) > 0
    for process, pid in (counted.children() | {"supervisor": counted.pid}).items():
        resident = found.value("pagoda_process_resident_bytes", process=process)
        assert found.value("pagoda_process_planned_bytes", process=process) > 0
        now = 1024 * int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0])
        assert resident == pytest.approx(now, rel=0.2), process
