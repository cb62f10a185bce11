"""Instructions a token, counted by valgrind: the same on a busy machine as on a quiet one, so a change can be judged.

Three runs that differ only in the length of the prompt or of the answer; start-up cancels in their differences.
valgrind knows no AVX-512, so the AVX2 kernels run.

make bench-cpu-instructions
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.report import machine, print_table, write_json
from pagoda.kernels.cpu.library import LIBRARY
from pagoda.weights.store import ensure_model

WORKER = Path(__file__).parent / "workers" / "count_instructions.py"
NAME = re.compile(r"\((\d+)\)(?: (.*))?")
Function = tuple[str, str]
"""(object file, function)"""


def read_callgrind(lines: Iterable[str]) -> Counter[Function]:
    """Instructions of each function itself, without those it calls."""
    counts: Counter[Function] = Counter()
    names: dict[str, dict[str, str]] = {"ob": {}, "fn": {}}
    where = {"ob": "", "fn": ""}
    is_call = False
    for line in lines:
        key, is_assignment, value = line.partition("=")
        kind = key.removeprefix("c")  # cob= and cfn= name the callee, and may name it for the first time
        if is_assignment and kind in names and (found := NAME.match(value)):
            number, name = found.groups()
            if name:
                names[kind][number] = name
            if key in where:
                where[key] = names[kind][number]
        elif line.startswith("calls="):
            is_call = True  # the next line has the cost of the call, which belongs to the callee
        elif line[:1].isdigit() or line.startswith(("+", "-", "*")):
            if not is_call:
                counts[where["ob"], where["fn"]] += int(line.split()[1])
            is_call = False
    return counts


def count(model: Path, num_prompt: int, num_output: int) -> Counter[Function]:
    print(f"\rcounting: prompt {num_prompt}, answer {num_output} ...".ljust(60), end="", flush=True)
    with TemporaryDirectory() as folder:
        output = Path(folder) / "out"
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={output}", "--dump-line=no", "-q"]
        command = [*valgrind, sys.executable, str(WORKER), str(model), str(num_prompt), str(num_output)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with output.open() as lines:
            return read_callgrind(lines)


def difference(more: Counter[Function], less: Counter[Function], num_tokens: int) -> dict[Function, float]:
    """Instructions a token of what the longer run did beyond the shorter one."""
    return {name: (more[name] - less[name]) / num_tokens for name in more if more[name] != less[name]}


def short_name(name: str) -> str:
    """Without result, arguments and anonymous namespaces; of template arguments the types, not the tile sizes."""
    name = name.replace("(anonymous namespace)::", "").partition("(")[0].removeprefix("void ")
    head, _, arguments = name.partition("<")
    kinds = [word for word in re.split(r"[<>,\s]+", arguments) if word and not word[0].isdigit()]
    return f"{head}<{', '.join(kinds)}>"[:60] if kinds else head


def by_kernel(counts: dict[Function, float], library: str) -> dict[str, float]:
    """Our kernels function by function; everything else in one sum."""
    found: Counter[str] = Counter()
    for (file, function), value in counts.items():
        found[short_name(function) if Path(file).name == library else "Python and other libraries"] += value
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompt", type=int, default=48, help="prompt tokens of the first run (default: %(default)s)")
    parser.add_argument("--more", type=int, default=48, help="and more in the second (default: %(default)s)")
    parser.add_argument("--decoded", type=int, default=4, help="tokens decoded in the third (default: %(default)s)")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed (Debian: apt-get install valgrind)")
    model = ensure_model(args.model)
    base = count(model, args.prompt, 1)
    prompt = by_kernel(difference(count(model, args.prompt + args.more, 1), base, args.more), LIBRARY.name)
    decode = by_kernel(difference(count(model, args.prompt, 1 + args.decoded), base, args.decoded), LIBRARY.name)
    print()
    names = sorted(prompt.keys() | decode.keys(), key=lambda name: -decode.get(name, 0.0))
    rows = [
        (name, f"{prompt.get(name, 0) / 1e6:,.3f}", f"{decode.get(name, 0) / 1e6:,.3f}")
        for name in names
        if max(prompt.get(name, 0), decode.get(name, 0)) >= 1e3
    ]
    rows.append(("all", f"{sum(prompt.values()) / 1e6:,.3f}", f"{sum(decode.values()) / 1e6:,.3f}"))
    print(f"{machine()}; AVX2 kernels, one thread, chunks of up to 512 tokens")
    print_table(f"Million instructions a token, {args.model}", ("function", "prompt", "decoding"), rows)
    print(f"\nwritten to {write_json('cpu_instructions', {'model': args.model, 'prompt': prompt, 'decode': decode})}")


if __name__ == "__main__":
    main()
