"""What becomes of requests when the engine is killed, and of the server when it is told to stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from pagoda.core.config import EngineConfig
from pagoda.server.config import ListenConfig, ProcessSettings, ServerConfig
from tests.server.conftest import OPTIONS
from tests.server.paced import PacedServer
from tests.server.raw_http import connect, head
from tests.server.running import RunningServer

BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "the engine"}],
    "temperature": 0,
    "max_tokens": 400,
    "ignore_eos": True,
}
LOUD_STREAM: dict[str, Any] = {"stream": True, "logprobs": True, "top_logprobs": 20, "n": 8}


@pytest.fixture
def own_server(tiny_folder: Path) -> Iterator[PacedServer]:
    with PacedServer(tiny_folder, *OPTIONS) as running:
        running.wait_until_ready()
        yield running


def test_a_server_that_was_stopped_as_a_whole_goes_on(own_server: PacedServer):
    engine = own_server.children()["engine"]
    everyone = [own_server.pid, *own_server.children().values()]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in everyone:
            os.kill(pid, number)
        time.sleep(1.5)  # longer than the supervisor waits for a signal at a time
    with own_server.client() as client:
        answer = client.post("/v1/chat/completions", json=BODY | {"max_tokens": 4})
        assert answer.status_code == 200, answer.text
    assert own_server.children()["engine"] == engine


def test_a_killed_engine_comes_back_and_nothing_is_lost_in_silence(own_server: PacedServer):
    with own_server.client() as client:
        expected = client.post("/v1/chat/completions", json=BODY).json()["choices"][0]["message"]["content"]
        answers: list[httpx.Response] = []

        def ask() -> None:
            with own_server.client() as other:
                answers.append(other.post("/v1/chat/completions", json=BODY))

        engine = own_server.children()["engine"]
        threads = [threading.Thread(target=ask) for _ in range(4)]
        chat = client.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True})
        with own_server.at_pace(0.02), chat as response:
            lines = response.iter_lines()
            next(lines)
            for thread in threads:
                thread.start()
            time.sleep(0.1)
            os.kill(engine, signal.SIGKILL)
            rest = [line for line in lines if line]
        assert "error" in rest[-1] and "[DONE]" not in rest[-1]
        assert not any('"finish_reason":"stop"' in line or '"finish_reason":"length"' in line for line in rest)
        assert client.get("/health").status_code == 200
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [200] * 4
        assert {answer.json()["choices"][0]["message"]["content"] for answer in answers} == {expected}


def test_a_server_that_is_told_to_stop_finishes_what_is_under_way(own_server: PacedServer):
    with own_server.client() as client:
        chat = client.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True})
        with own_server.at_pace(0.005), chat as response:
            lines = response.iter_lines()
            next(lines)
            own_server.signal(signal.SIGTERM)
            with own_server.client() as other:
                deadline = time.monotonic() + 5
                while time.monotonic() < deadline:
                    try:
                        refused = other.post("/v1/chat/completions", json=BODY)
                    except httpx.TransportError:
                        break
                    if refused.status_code == 503:
                        assert int(refused.headers["retry-after"]) >= 1
                        break
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
    assert own_server.wait() == 0


def test_clients_that_neither_read_nor_finish_do_not_keep_a_server_from_stopping(tiny_folder: Path):
    with RunningServer(tiny_folder, *OPTIONS, "--drain-seconds", "1", "--max-body-seconds", "600") as server:
        server.wait_until_ready()
        body = json.dumps(BODY | LOUD_STREAM).encode()
        fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start = head("POST", "/v1/chat/completions", fields)
        with connect(server.url, receive_buffer=1024) as deaf, connect(server.url) as slow:
            deaf.sendall(start + body)
            slow.sendall(start + body[:10])
            with server.client() as client:
                deadline = time.monotonic() + 10
                while time.monotonic() < deadline and "generated_tokens_total" not in client.get("/metrics").text:
                    time.sleep(0.02)
            time.sleep(0.5)
            server.signal(signal.SIGTERM)
            assert server.wait(30) == 0


def test_a_ctrl_c_reaches_all_processes_and_drains_all_the_same(own_server: PacedServer):
    with own_server.client() as client:
        chat = client.stream("POST", "/v1/chat/completions", json=BODY | {"stream": True})
        with own_server.at_pace(0.005), chat as response:
            lines = response.iter_lines()
            next(lines)
            for pid in (own_server.pid, *own_server.children().values()):
                os.kill(pid, signal.SIGINT)
            assert [line for line in lines if line][-1] == "data: [DONE]"
    assert own_server.wait(30) == 0


def test_an_engine_that_dies_again_and_again_ends_the_server(own_server: PacedServer):
    for _ in range(3):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and "engine" not in own_server.children():
            time.sleep(0.02)
        os.kill(own_server.children()["engine"], signal.SIGKILL)
        time.sleep(0.2)
    assert own_server.wait() != 0


def send_to_next_engine(server: RunningServer, number: int, last: int = 0) -> int:
    """A signal, as soon as the engine is there; its process id."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # a process that is listed may be gone when it is looked at
            engine = server.children().get("engine", last)
            if engine != last:
                os.kill(engine, number)
                return engine
        time.sleep(0.01)
    raise AssertionError("no engine came")


def test_who_waits_is_told_when_no_engine_will_come(own_server: PacedServer):
    answers: list[httpx.Response] = []

    def ask(**fields: Any) -> None:
        with own_server.client() as client:
            answers.append(client.post("/v1/chat/completions", json=BODY | fields))

    first = send_to_next_engine(own_server, signal.SIGKILL)
    second = send_to_next_engine(own_server, signal.SIGSTOP, first)
    threads = [threading.Thread(target=ask, kwargs={"stream": number % 2 == 0}) for number in range(4)]
    for thread in threads:
        thread.start()
    waiting = 'pagoda_requests_open{model_name="tiny"} 4'
    with own_server.client() as client:
        deadline = time.monotonic() + 30
        while waiting not in client.get("/metrics").text:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    os.kill(second, signal.SIGKILL)
    send_to_next_engine(own_server, signal.SIGKILL, second)
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [503] * 4
    for answer in answers:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["code"] == "engine_failed"
        assert int(answer.headers["retry-after"]) > 0
    assert own_server.wait() == 1


def test_no_process_outlives_the_supervisor(own_server: PacedServer):
    children = own_server.children()
    own_server.signal(signal.SIGKILL)
    own_server.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in children.values()):
        time.sleep(0.02)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())


def test_an_http_process_whose_supervisor_is_gone_before_it_began_ends(tiny_folder: Path, tmp_path: Path):
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    settings = ProcessSettings(
        server=ServerConfig(listen=ListenConfig(port=0)),
        engine=EngineConfig(model=str(tiny_folder)),
        model_path=str(tiny_folder),
        engine_socket=str(tmp_path / "engine"),
        supervisor_pid=gone.pid,
    )
    command = [sys.executable, "-m", "pagoda.server.process", msgspec.json.encode(settings).decode()]
    assert subprocess.run(command, timeout=30, check=False).returncode == -signal.SIGKILL


def test_a_killed_server_leaves_no_folder_for_long(tiny_folder: Path, tmp_path: Path):
    environment = {"TMPDIR": str(tmp_path)}
    with RunningServer(tiny_folder, *OPTIONS, environment=environment) as server:
        [folder] = tmp_path.iterdir()
        server.signal(signal.SIGKILL)
        server.wait()
    assert folder.exists()
    with RunningServer(tiny_folder, *OPTIONS, environment=environment):
        [other] = tmp_path.iterdir()
        assert other != folder
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken_is_said_in_one_line(own_server: PacedServer, tiny_folder: Path):
    port = own_server.url.rpartition(":")[2]
    with pytest.raises(AssertionError, match="in use"):
        RunningServer(tiny_folder, *OPTIONS, "--port", port)
