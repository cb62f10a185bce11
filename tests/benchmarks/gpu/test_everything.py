"""Parts side by side and in turn, with programs that are over at once or never."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.gpu import everything
from benchmarks.gpu.everything import Outcome, Part, all_parts, run, show

AN_HOUR = 3600.0


def part(name: str, code: str, is_timed: bool = False, usual_seconds: float = 0.0, obstacle: str = "") -> Part:
    command = (sys.executable, "-c", code)
    return Part(name, command, usual_seconds, is_timed, num_lines=2, obstacle=obstacle)


def outcomes(folder: Path, *parts: Part, seconds: float = AN_HOUR) -> dict[str, Outcome]:
    return {one.part.name: one for one in run(list(parts), folder, time.monotonic() + seconds)}


def test_what_came_of_each_is_told_with_the_end_of_its_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    found = outcomes(
        tmp_path,
        part("good", "for number in range(9): print(number)"),
        part("bad", "print('so far'); raise SystemExit(3)"),
        part("absent", "", obstacle="no such tool"),
    )
    assert (found["good"].said, found["good"].lines) == ("held", [str(number) for number in range(9)])
    assert (found["bad"].said, found["bad"].lines) == ("failed, exit 3", ["so far"])
    assert found["absent"].said == "left out: no such tool"
    assert [one.is_good for one in found.values()].count(True) == 1
    log = tmp_path / "whole.txt"
    for one in found.values():
        show(one, log)
    shown = capsys.readouterr().out.splitlines()
    place = shown.index(f"=== good: held, {found['good'].seconds:.0f} s")
    assert shown[place + 1 : place + 3] == ["7", "8"], "the end of it"
    assert "\n".join(map(str, range(9))) in log.read_text() and "=== bad: failed, exit 3" in log.read_text()


def test_what_is_timed_is_alone(tmp_path: Path):
    """Each notes when it begins and ends: those side by side meet, the timed ones meet nobody."""

    def noting(work: str) -> str:
        return f"import os, time; start = time.monotonic()\n{work}\nprint(start, time.monotonic())"

    def meeting(own: str, other: str) -> str:
        path = str(tmp_path / other)
        return noting(f"open({str(tmp_path / own)!r}, 'w')\nwhile not os.path.exists({path!r}): time.sleep(0.01)")

    found = outcomes(
        tmp_path,
        part("timed 1", noting("time.sleep(0.1)"), is_timed=True),
        part("one", meeting("here", "there")),
        part("timed 2", noting("time.sleep(0.1)"), is_timed=True),
        part("other", meeting("there", "here")),
        seconds=60,
    )
    assert all(one.said == "held" for one in found.values())
    times = {name: [float(number) for number in one.lines[-1].split()] for name, one in found.items()}
    assert times["timed 1"][1] < times["timed 2"][0]
    assert max(times["one"][1], times["other"][1]) < times["timed 1"][0]


def test_what_takes_too_long_is_cut_off_and_what_would_is_not_begun(tmp_path: Path):
    endless = "import subprocess, sys; print('at work', flush=True); subprocess.run(['sleep', '3600'])"
    found = outcomes(
        tmp_path,
        part("endless", endless),
        part("long", "", usual_seconds=AN_HOUR),
        part("late", "", is_timed=True),
        seconds=2,
    )
    assert found["endless"].said == "cut off" and found["endless"].lines == ["at work"]
    assert found["long"].said == found["late"].said == "left out: no time"


def test_an_interrupt_ends_what_is_under_way(tmp_path: Path):
    note = tmp_path / "endless"
    endless = tmp_path / "endless.py"
    endless.write_text(
        "import os, time\nfrom pathlib import Path\n"
        f"Path({str(note)!r}).write_text(f'{{os.getpid()}}\\n')\ntime.sleep(3600)\n"
    )
    code = (
        "import sys; from benchmarks.gpu import everything\n"
        f"part = everything.Part('endless', (sys.executable, {str(endless)!r}), 0)\n"
        "everything.all_parts = lambda model: [part]\n"
        "sys.argv[1:] = []\n"
        "sys.exit(everything.main())"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (note.exists() and note.read_text().endswith("\n")) and time.monotonic() < deadline:
            time.sleep(0.02)
        own = int(note.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == everything.EXIT_INTERRUPTED
        assert process.stderr is not None and "interrupted" in process.stderr.read()
    with pytest.raises(ProcessLookupError):
        os.kill(own, 0)


def test_every_part_is_a_module_that_is_there():
    parts = all_parts(Path("model.gguf"))
    modules = [part.command[part.command.index("-m") + 1] for part in parts]
    for module in modules:
        assert importlib.util.find_spec(module) is not None
    assert len({part.name for part in parts}) == len(parts)
    without_model = {part.name: part.obstacle for part in all_parts(None)}
    assert without_model["precision"] == "no --model was given"


def test_the_model_must_be_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "argv", ["everything", "--model", "nowhere.gguf"])
    with pytest.raises(SystemExit):
        everything.main()
    assert "--model: there is no file nowhere.gguf" in capsys.readouterr().err
