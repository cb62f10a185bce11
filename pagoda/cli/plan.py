"""`pagoda plan`: what a server of a model would take, and what it would have room for, before anything is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pagoda.cli.formatting import format_bytes, format_table
from pagoda.cli.serve_settings import SECTIONS, ServeSettings
from pagoda.core.errors import InvalidRequest

if TYPE_CHECKING:
    from pagoda.engine.ledger import Process, ServerLedger

EXAMPLES = """\
  pagoda plan smollm2
  pagoda plan smollm2 --kv-cache-type int8 --max-model-len 4096
  pagoda plan ./model.gguf --max-num-seqs 8 --json
  pagoda plan ./llama-8b --device cuda --gpu-memory 139
"""

TITLES: dict[Process, str] = {
    "device": "on the GPU",
    "engine": "engine process",
    "http": "HTTP process",
    "supervisor": "supervisor",
}
GIBIBYTE = 1 << 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pagoda plan [MODEL] [options]"
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a name, a .gguf file or a model folder (default: smollm2)"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument(
        "--gpu-memory", metavar="GIB", type=float, help="plan for a GPU with so much free memory (default: this one's)"
    )
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings, as for `pagoda serve`")
    SECTIONS["engine"].options.add_to(parser.add_argument_group("engine"))


def main(args: argparse.Namespace) -> int:
    import msgspec

    from pagoda.engine.ledger import plan_server

    if args.gpu_memory is not None and args.gpu_memory <= 0:
        raise InvalidRequest("gpu_memory", f"must be above 0, not {args.gpu_memory:g}")
    gpu_bytes = None if args.gpu_memory is None else int(args.gpu_memory * GIBIBYTE)
    ledger = plan_server(ServeSettings.read(args).process_settings().engine, gpu_bytes)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(ledger), indent=2).decode())
    else:
        print("\n".join(_lines(ledger)))
    return 0


def _lines(ledger: ServerLedger) -> Iterator[str]:
    config, memory = ledger.config, ledger.memory
    yield (
        f"{config.model}: {config.num_rows} rows of up to {memory.max_model_len} tokens "
        f"(the model's context is {ledger.model_context}), computed in {ledger.compute}"
    )
    yield ""
    yield format_table([*_table(ledger)])
    yield ""
    share = config.gpu_memory_utilization
    whose = "The GPU's lines" if config.device == "cuda" else "The engine's first five lines"
    yield (
        f"{whose} are to the byte, and may take {format_bytes(memory.budget_bytes)}: {share:g} (gpu_memory_utilization)"
    )
    yield (
        f"of the {format_bytes(ledger.available_bytes)} that are free now. Margin: {format_bytes(ledger.margin_bytes)}."
        f" Lines with ~ are estimates{'' if config.device == 'cuda' else ', beside that'}."
    )
    if config.device != "cuda":
        yield "Pages are touched as they are first used: until then they take nothing."
    yield ""
    yield "what fits, by --kv-cache-type"
    yield format_table([*_capacities(ledger)])


def _table(ledger: ServerLedger) -> Iterator[tuple[str, str, str]]:
    for process, title in TITLES.items():
        if process not in ledger.process_bytes:
            continue
        yield title, format_bytes(ledger.process_bytes[process]), ""
        for line in ledger.lines:
            if line.process == process:
                mark = "~" if line.is_estimate else ""
                yield f"  {line.name}", mark + format_bytes(line.num_bytes), line.meaning
    yield "in all", format_bytes(sum(ledger.process_bytes.values())), ""


def _capacities(ledger: ServerLedger) -> Iterator[tuple[str, ...]]:
    contexts = sorted({length for found in ledger.capacities for length in found.streams})
    heads = [f"streams of {length}" for length in contexts]
    yield ("type", "bytes a token", "longest", "tokens in all", *heads)
    for found in ledger.capacities:
        name = f"{found.kv_cache_type} (now)" if found.kv_cache_type == ledger.kv_cache_type else found.kv_cache_type
        counts = [str(found.streams.get(length, 0)) for length in contexts]
        yield (name, str(found.bytes_per_token), str(found.max_model_len), str(found.num_tokens), *counts)
