"""`pagoda plan`: what a server of a model would take, and what it would have room for, before anything is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pagoda.cli.formatting import format_bytes, format_table
from pagoda.cli.serve_settings import SECTIONS, ServeSettings

if TYPE_CHECKING:
    from pagoda.engine.ledger import Process, ServerLedger

EXAMPLES = """\
  pagoda plan smollm2
  pagoda plan smollm2 --kv-cache-type int8 --max-model-len 4096
  pagoda plan ./model.gguf --max-num-seqs 8 --json
"""

TITLES: dict[Process, str] = {"engine": "engine process", "http": "HTTP process", "supervisor": "supervisor"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pagoda plan [MODEL] [options]"
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a name, a .gguf file or a model folder (default: smollm2)"
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--config", metavar="FILE", help="TOML file of settings, as for `pagoda serve`")
    SECTIONS["engine"].options.add_to(parser.add_argument_group("engine"))


def main(args: argparse.Namespace) -> int:
    import msgspec

    from pagoda.engine.ledger import plan_server

    ledger = plan_server(ServeSettings.read(args).process_settings().engine)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(ledger), indent=2).decode())
    else:
        print("\n".join(_lines(ledger)))
    return 0


def _lines(ledger: ServerLedger) -> Iterator[str]:
    config, memory = ledger.config, ledger.memory
    yield (
        f"{config.model}: {config.max_num_seqs} rows of up to {memory.max_model_len} tokens "
        f"(the model's context is {ledger.model_context}), computed in {ledger.compute}"
    )
    yield ""
    yield format_table([*_table(ledger)])
    yield ""
    share = config.gpu_memory_utilization
    yield (
        f"The engine's first five lines are to the byte, and may take {format_bytes(memory.budget_bytes)}: {share:g} "
        f"(gpu_memory_utilization)"
    )
    yield (
        f"of the {format_bytes(ledger.available_bytes)} that are free now. Margin: {format_bytes(ledger.margin_bytes)}."
        f" Lines with ~ are estimates, beside that."
    )
    yield "Pages are touched as they are first used: until then they take nothing."
    yield ""
    yield "what fits, by --kv-cache-type"
    yield format_table([*_capacities(ledger)])


def _table(ledger: ServerLedger) -> Iterator[tuple[str, str, str]]:
    for process, title in TITLES.items():
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
