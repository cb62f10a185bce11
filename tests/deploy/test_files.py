"""What the files of deploy/ say about the server is true of the server."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from pagoda.cli import serve
from pagoda.cli.serve_settings import PLAIN, SECTIONS
from pagoda.core.environment import VARIABLES, variable_of
from pagoda.server.config import QueueConfig
from pagoda.server.route_table import route_table

DEPLOY = Path("deploy")
YAML = sorted(DEPLOY.rglob("*.y*ml"))
DOCKERFILES = [DEPLOY / "Dockerfile", DEPLOY / "Dockerfile.cuda"]
KNOWN = {variable.name for variable in VARIABLES} | {
    variable_of(name) for name in [*PLAIN, *(field for section in SECTIONS.values() for field in section.fields)]
}


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def kind_of(kind: str) -> Any:
    [found] = [item for item in documents("kubernetes/pagoda.yaml") if item["kind"] == kind]
    return found


def parse(words: list[str]) -> Any:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return parser.parse_args(words)


def test_every_yaml_file_is_tidy():
    done = subprocess.run(
        [sys.executable, "-m", "yamllint", "--strict", *map(str, YAML)], capture_output=True, text=True
    )
    assert len(YAML) >= 5 and done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", [*DOCKERFILES, *YAML, DEPLOY / "systemd/pagoda.service"], ids=str)
def test_every_variable_of_ours_is_one(path: Path):
    for name in re.findall(r"\bPAGODA_[A-Z_]+\b", path.read_text()):
        assert name in KNOWN, f"{path}: {name}"


@pytest.mark.parametrize("path", DOCKERFILES, ids=str)
def test_an_image_copies_what_is_there_and_what_the_build_may_see(path: Path):
    seen = {line[1:] for line in Path(".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", path.read_text(), re.M)
    assert copied
    for name in " ".join(copied).split():
        assert Path(name).exists() and name in seen, name
    extras = set(re.findall(r"'\.\[([\w,]+)\]'", path.read_text())[0].split(","))
    assert extras <= set(tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"])


def test_probes_ask_routes_that_need_no_key():
    [container] = kind_of("Deployment")["spec"]["template"]["spec"]["containers"]
    paths = {probe: container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/ready", "readiness": "/ready", "liveness": "/health"}
    assert all(route_table().is_open(path) for path in paths.values())
    for path in DOCKERFILES:
        assert "8000/health" in path.read_text()


def test_kubernetes_gives_settings_that_the_server_takes():
    pod = kind_of("Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert parse(container["args"]).model == "smollm2"
    assert pod["enableServiceLinks"] is False, "or Kubernetes sets PAGODA_PORT to an address"
    assert container["securityContext"]["readOnlyRootFilesystem"] and pod["securityContext"]["runAsNonRoot"]
    assert {"requests", "limits"} <= container["resources"].keys()


def test_whoever_stops_a_server_waits_until_it_has_drained():
    drain = QueueConfig().drain_seconds
    assert kind_of("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > drain
    [compose] = documents("docker-compose.yml")
    assert int(compose["services"]["pagoda"]["stop_grace_period"].rstrip("s")) > drain
    unit = (DEPLOY / "systemd/pagoda.service").read_text()
    assert int(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) > drain
    assert "KillMode=mixed" in unit, "a second SIGTERM to the HTTP process would mean: at once"


def test_compose_mounts_what_is_there_and_listens_on_loopback():
    [compose] = documents("docker-compose.yml")
    for name, service in compose["services"].items():
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:"), name
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert (DEPLOY / source).exists() if source.startswith(".") else source in compose["volumes"], volume
    [scrape] = documents("prometheus/prometheus.yml")[0]["scrape_configs"]
    assert scrape["static_configs"][0]["targets"] == ["pagoda:8000"]
    route_table().find("GET", scrape["metrics_path"])


def test_the_unit_starts_the_server_as_it_wants_to_be_started(tmp_path: Path):
    unit = (DEPLOY / "systemd/pagoda.service").read_text()
    command = shlex.split(re.findall(r"^ExecStart=(.*)$", unit, re.M)[0])
    assert command[1] == "serve" and parse(command[2:]).config == "/etc/pagoda/server.toml"
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not here to check its unit")
    # The program need not be there to check the rest.
    (tmp_path / "pagoda.service").write_text(unit.replace(command[0], sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "pagoda.service")], capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
