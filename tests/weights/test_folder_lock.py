"""The lock: one holder at a time, none after a holder's death, no file left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

from pagoda.weights.folder_lock import exclusive_lock

HOLD = """
import sys, time
from pathlib import Path
from pagoda.weights.folder_lock import exclusive_lock
with exclusive_lock(Path(sys.argv[1]), lambda: None):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "model"
    num_holders, most_holders = 0, 0
    num_turns = 0

    def work() -> None:
        nonlocal num_holders, most_holders, num_turns
        for _ in range(5):
            with exclusive_lock(path, lambda: None):
                num_holders += 1
                most_holders = max(most_holders, num_holders)
                num_turns += 1
                num_holders -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most_holders, num_turns) == (1, 20)
    assert list(path.parent.iterdir()) == []


def test_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model"
    root = str(Path(__file__).resolve().parents[2])
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True, cwd=root)
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    waited = []

    def kill() -> None:
        waited.append(True)
        holder.send_signal(signal.SIGKILL)
        holder.wait()

    with exclusive_lock(path, kill):
        assert waited
    holder.stdout.close()
