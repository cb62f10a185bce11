"""The team of threads: forks, exits, several callers at once, teams of several sizes.

Each test is a process of its own, so that one that hangs is killed and counted and the others run.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pagoda.kernels.cpu import CpuKernels, library
from tests.kernels.cpu.programs import assert_same_bits, compile_program, flat_batch, normal, over
from tests.kernels.reference.dense_weight import DenseWeight

ROOT = Path(__file__).parents[3]
PRELUDE = """
import os, sys, threading
import numpy as np
from pagoda.kernels.cpu import CpuKernels, library
library.LIBRARY = sys.argv[1]
from tests.kernels.cpu.programs import compile_program, flat_batch, normal, over
from tests.kernels.reference.dense_weight import DenseWeight

def program(num_threads, seed=0):
    weight = DenseWeight(normal(64, 64, seed=seed))
    def forward(table, x):
        for _ in range(20):
            x = table.soft_cap(table.linear(x, weight), 1.0)
        return x
    kernels = CpuKernels(num_threads)
    return compile_program(kernels, over(forward, normal(8, 64)), [kernels.new_pages(1, 16, 1, 16)], 8)

def run(program):
    return program.run(flat_batch(8), np.arange(8, dtype=np.int32)).tobytes()

def answer_of_a_child(work):
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def run_process(body: str) -> str:
    script = PRELUDE + textwrap.dedent(body)
    command = [sys.executable, "-c", script, str(library.LIBRARY)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_child_process_has_a_team_of_its_own():
    output = run_process("""
        three = program(3)
        expected = run(three)
        for _ in range(5):
            assert answer_of_a_child(lambda: run(three) == expected) == 0
            assert run(three) == expected
        print("same")
    """)
    assert output == "same"


def test_a_grandchild_too_and_one_whose_parent_never_computed():
    output = run_process("""
        two = program(2)
        expected = run(two)
        def grandchild():
            return answer_of_a_child(lambda: run(two) == expected) == 0
        assert answer_of_a_child(grandchild) == 0
        assert answer_of_a_child(lambda: grandchild() and run(two) == expected and grandchild()) == 0
        print("same")
    """)
    assert output == "same"


def test_a_fork_in_the_middle_of_the_work_of_another_thread():
    output = run_process("""
        busy, own = program(3), program(3, seed=1)
        expected = run(own)
        stop = threading.Event()
        def work():
            while not stop.is_set():
                run(busy)
        worker = threading.Thread(target=work)
        worker.start()
        codes = [answer_of_a_child(lambda: run(own) == expected) for _ in range(20)]
        stop.set()
        worker.join()
        print(codes == [0] * 20)
    """)
    assert output == "True"


@pytest.mark.parametrize("ending", ["pass", "sys.exit(0)", "import time; time.sleep(0.05)"])
def test_a_process_ends_while_its_team_waits(ending: str):
    assert run_process(f"run(program(3)); print('done'); {ending}") == "done"


def test_a_process_ends_while_a_thread_of_it_computes():
    run_process("""
        busy = program(3)
        def work():
            while True:
                run(busy)
        threading.Thread(target=work, daemon=True).start()
        import time
        time.sleep(0.1)
    """)


def test_more_threads_than_cores():
    output = run_process("""
        expected = run(program(1))
        print(all(run(program(count)) == expected for count in (16, 2, 40, 1, 3)))
    """)
    assert output == "True"


def deep_program(kernels: CpuKernels, seed: int):
    weight = DenseWeight(normal(48, 48, seed=seed))

    def forward(table, x):
        for _ in range(10):
            x = table.soft_cap(table.linear(x, weight), 1.0)
        return x

    return compile_program(kernels, over(forward, normal(6, 48, seed=seed)), [kernels.new_pages(1, 16, 1, 16)], 6)


def test_several_callers_at_once_each_get_their_own_answer():
    rows = np.arange(6, dtype=np.int32)
    expected = [deep_program(CpuKernels(1), seed).run(flat_batch(6), rows) for seed in range(4)]

    def call(seed: int) -> None:
        own = deep_program(CpuKernels(1 + seed % 3), seed)
        for _ in range(50):
            assert_same_bits(own.run(flat_batch(6), rows), expected[seed])

    with ThreadPoolExecutor(4) as callers:
        list(callers.map(call, range(4)))


def test_many_sets_of_kernels_in_one_process_take_turns():
    rows = np.arange(6, dtype=np.int32)
    programs = [deep_program(CpuKernels(1 + number % 3), number % 4) for number in range(20)]
    expected = [deep_program(CpuKernels(1), seed).run(flat_batch(6), rows) for seed in range(4)]
    for turn in range(200):
        number = turn * 7 % 20
        assert_same_bits(programs[number].run(flat_batch(6), rows), expected[number % 4])


def test_threads_that_share_one_program_take_turns():
    program = deep_program(CpuKernels(2), 0)
    rows = np.arange(6, dtype=np.int32)
    batches = [flat_batch(6), flat_batch(3), flat_batch(1)]
    expected = [program.run(batch, rows[: len(batch.token_ids)]) for batch in batches]

    def call(number: int) -> None:
        batch = batches[number % 3]
        for _ in range(100):
            assert_same_bits(program.run(batch, rows[: len(batch.token_ids)]), expected[number % 3])

    with ThreadPoolExecutor(6) as callers:
        list(callers.map(call, range(6)))


def test_a_fork_while_another_thread_runs_the_same_program():
    output = run_process("""
        shared = program(3)
        expected = run(shared)
        stop = threading.Event()
        def work():
            while not stop.is_set():
                run(shared)
        worker = threading.Thread(target=work)
        worker.start()
        codes = [answer_of_a_child(lambda: run(shared) == expected) for _ in range(20)]
        stop.set()
        worker.join()
        print(codes == [0] * 20)
    """)
    assert output == "True"
