"""Settings from a file, the environment and the command line: who wins, and what is refused."""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pagoda.cli import serve
from pagoda.cli.main import main
from pagoda.cli.serve_settings import PLAIN, SECTIONS, ServeSettings
from pagoda.core.environment import variable_of
from pagoda.core.errors import InvalidRequest
from pagoda.engine.device import Gpu
from pagoda.server.config import ProcessSettings


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*PLAIN, "api_key", *(field for section in SECTIONS.values() for field in section.fields)]:
        monkeypatch.delenv(variable_of(name), raising=False)


def read(*words: str) -> ServeSettings:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return ServeSettings.read(parser.parse_intermixed_args(words))


def settings(*words: str) -> ProcessSettings:
    return read(*words).process_settings()


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "server.toml"
        path.write_text(text)
        return str(path)

    return write


def test_nothing_said_is_the_records_own_defaults():
    found = settings()
    assert found.engine.model == "smollm2" and found.engine == type(found.engine)(model="smollm2", device="cpu")
    assert found.server == type(found.server)()


def test_the_command_line_goes_before_the_environment_and_that_before_the_file(file, monkeypatch):
    path = file(
        'model = "from-file"\n[listen]\nport = 1\nhost = "a"\n[engine]\nmax_num_seqs = 3\n[log]\nlog_prompts = true'
    )
    assert settings("--config", path).server.listen.port == 1
    monkeypatch.setenv("PAGODA_PORT", "2")
    monkeypatch.setenv("PAGODA_MAX_NUM_SEQS", "4")
    monkeypatch.setenv("PAGODA_LOG_PROMPTS", "false")
    found = settings("--config", path)
    assert found.server.listen.port == 2 and found.server.listen.host == "a" and found.engine.max_num_seqs == 4
    assert found.server.log.log_prompts is False and found.engine.model == "from-file"
    found = settings("from-line", "--config", path, "--port", "3", "--log-prompts")
    assert (found.server.listen.port, found.engine.model, found.server.log.log_prompts) == (3, "from-line", True)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_can_be_said_in_all_three_ways(section: str, file, monkeypatch: pytest.MonkeyPatch):
    values: dict[type, tuple[Any, str]] = {int: (7, "7"), float: (0.25, "0.25"), str: ("http://x", "http://x")}
    for setting in SECTIONS[section].options._settings:
        if setting.name in ("block_size", "max_num_batched_tokens", "tls_certificate", "tls_key", "max_num_seqs"):
            continue  # bound to one another
        choices = [c for c in getattr(setting.type, "__args__", ()) if c != setting.default]
        value, text = values.get(setting.type, (choices[0] if choices else None, str(choices[0]) if choices else ""))
        words = [setting.option, text]
        if setting.type is bool:
            value, text = not setting.default, str(not setting.default).lower()
            words = ["--" + ("" if value else "no-") + setting.option[2:]]
        if str(setting.type).startswith("tuple"):
            value, text, words = ("x", "y"), "x, y", [setting.option, "x", setting.option, "y"]
        written = list(value) if isinstance(value, tuple) else value
        path = file(f"[{section}]\n{setting.name} = {msgspec.json.encode(written).decode()}\n")
        ways = [read("--config", path), read(*words)]
        monkeypatch.setenv(variable_of(setting.name), text)
        ways.append(read())
        monkeypatch.delenv(variable_of(setting.name))
        assert [way.sections[section][setting.name].value for way in ways] == [value] * 3, setting.name


def test_no_two_settings_share_a_variable():
    names = [*PLAIN, *(field for section in SECTIONS.values() for field in section.fields)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[listen]\nprot = 1", r"\[listen\] prot: is not a setting; did you mean 'port'\?"),
        ("[listen]\nmax_num_seqs = 1", r"\[listen\] max_num_seqs: .*belongs under \[engine\]"),
        ("port = 1", r"port: .*belongs under \[listen\]"),
        ("[enigne]\nx = 1", r"enigne: .*did you mean 'engine'"),
        ("listen = 3", r"listen: must be a table"),
        ('[listen]\nport = "8000"', r"\[listen\] port: expected `int`, got `str`"),
        ("[listen]\nport = 70000", r"port: must lie between .*\(said by: file "),
        ("model = 3", "model: expected `str`"),
        ("[listen", "--config: .* is not TOML"),
        ("model = " + "[" * 100_000, "--config: .* is not TOML"),
    ],
)
def test_a_bad_file_is_refused_by_name(file, text: str, message: str):
    with pytest.raises(InvalidRequest, match=message) as caught:
        settings("--config", file(text))
    assert "\n" not in str(caught.value)


def test_a_bad_variable_is_refused_by_its_own_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PAGODA_PORT", "tcp://10.0.0.1:80")
    with pytest.raises(InvalidRequest, match="PAGODA_PORT: "):
        settings()
    monkeypatch.setenv("PAGODA_PORT", "-1")
    with pytest.raises(InvalidRequest, match=r"port: .*said by: environment PAGODA_PORT"):
        settings()
    with pytest.raises(InvalidRequest, match="cannot be read"):
        settings("--config", "/nowhere")


def test_printed_settings_tell_their_source_and_are_a_file_that_says_the_same(file, monkeypatch, capsys):
    monkeypatch.setenv("PAGODA_ALLOWED_HOSTS", "one,two")
    monkeypatch.setenv("PAGODA_API_KEY", "a-secret-key")
    path = file("[queue]\nrequest_timeout = 2.5\n")
    words = ("tiny", "--config", path, "--kv-cache-type", "int8")
    assert main(["serve", *words, "--print-config"]) == 0
    text = capsys.readouterr().out
    assert "a-secret-key" not in text and "PAGODA_API_KEY is set" in text
    for pattern in (
        r'model = "tiny" +# command line',
        rf"request_timeout = 2.5 +# file {re.escape(path)}",
        r'allowed_hosts = \["one", "two"\] +# environment PAGODA_ALLOWED_HOSTS',
        r"port = 8000 +# default",
    ):
        assert re.search(pattern, text), pattern
    before = settings(*words)
    monkeypatch.delenv("PAGODA_ALLOWED_HOSTS")
    assert tomllib.loads(text)["queue"]["request_timeout"] == 2.5
    assert settings("--config", file(text)) == before


def test_help_is_grouped_and_fits_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    text = capsys.readouterr().out
    for name, section in SECTIONS.items():
        assert f"{section.title} ([{name}]):" in text
        assert all("--" + field.replace("_", "-") in text for field in section.fields)
    options = text.partition("examples:")[0]
    assert max(map(len, options.splitlines())) <= 80
    assert "OpenTelemetry" in text


def test_a_gpu_has_defaults_of_its_own(monkeypatch: pytest.MonkeyPatch):
    found = settings("--device", "cuda", "--block-size", "32").engine
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.block_size) == (None, 8192, 32)
    shown = "\n".join(read("--device", "cuda", "--block-size", "32").as_toml())
    assert "# max_num_seqs is not set (default on cuda)" in shown
    assert re.search(r"^max_num_batched_tokens = 8192 +# default on cuda$", shown, re.M)
    assert re.search(r"^block_size = 32 +# command line$", shown, re.M)
    monkeypatch.setenv(variable_of("device"), "cuda")
    assert settings().engine.gpu_memory_utilization == 0.9


def test_a_gpu_that_is_found_is_told_as_the_reason(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pagoda.engine.device.first_gpu", lambda: Gpu("NVIDIA H200", (9, 0)))
    monkeypatch.setattr("pagoda.engine.device._obstacle", lambda gpu: None)
    shown = "\n".join(read("--block-size", "32").as_toml())
    assert re.search(r'^device = "cuda" +# found NVIDIA H200$', shown, re.M)
    assert re.search(r"^gpu_memory_utilization = 0.9 +# default on cuda$", shown, re.M)
    assert re.search(r"^block_size = 32 +# command line$", shown, re.M)
    shown = "\n".join(read("--num-threads", "2").as_toml())
    assert re.search(r'^device = "cpu" +# num_threads is said, which is a CPU\'s$', shown, re.M)
    assert settings("--device", "cpu").engine.block_size == 16
