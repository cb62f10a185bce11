"""The comparison for other models: Gemma 3 270M, and a random model of Llama 3.2 1B's shape in Q4_K and Q8_0.

make bench-cpu-models
Options are those of benchmarks.cpu.compare, but --model and --name.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.cpu import random_llama
from benchmarks.cpu.peers import PEERS

# llama.cpp also in the format that suits it best. The long task takes some engines minutes here: it is run once, and
# not by who is far behind already (float32 weights are read five times as slowly).
OPTIONS = (
    "--formats",
    "Q4_0",
    "--server-formats",
    "Q4_0",
    "--repeats",
    "2",
    "--long-repeats",
    "1",
    "--sit-out",
    "0.2",
)


def main() -> None:
    PEERS.mkdir(parents=True, exist_ok=True)
    models = {"gemma3-270m": "gemma3-270m"}
    models.update({f"llama-1b-{name}": str(random_llama.make(name, PEERS)) for name in ("Q4_K", "Q8_0")})
    for name, model in models.items():
        print(f"\n=== {name}", flush=True)
        command = [sys.executable, "-m", "benchmarks.cpu.compare", "--model", model, "--name", f"cpu_compare_{name}"]
        subprocess.run([*command, *OPTIONS, *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
