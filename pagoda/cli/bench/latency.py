"""`pagoda bench latency`: how long one batch takes in this process, beside what the device allows."""

from __future__ import annotations

import argparse
from typing import Any

from pagoda.bench.config import LatencyConfig
from pagoda.cli.bench.offline import ENGINE_OPTIONS, add_engine_and_results, add_model, loaded
from pagoda.cli.bench.serve import EXIT_INTERRUPTED
from pagoda.cli.settings import SettingOptions
from pagoda.core.config import EngineConfig
from pagoda.core.errors import InvalidRequest

EXAMPLES = """\
  pagoda bench latency
  pagoda bench latency smollm2 --batch-size 8 --input-len 512 --output-len 64 --repeats 20
  pagoda bench latency ./Llama-3.1-8B --device cuda --load-format dummy --quantization fp8 --json latency.json
"""
BATCH = SettingOptions(LatencyConfig)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pagoda bench latency [MODEL] [options]"
    add_model(parser)
    BATCH.add_to(parser.add_argument_group("batch"))
    add_engine_and_results(parser)


def main(args: argparse.Namespace) -> int:
    from pagoda.cli.bench.files import write_json
    from pagoda.cli.bench.progress import RunsProgress
    from pagoda.cli.bench.show_offline import latency_summary

    batch = LatencyConfig(**BATCH.given(args))
    with loaded(args, with_room_for(batch.batch_size, ENGINE_OPTIONS.given(args))) as (llm, device, name):
        from pagoda.bench.latency import bench_latency

        with RunsProgress(batch.warmup + batch.repeats, enabled=not args.quiet) as progress:
            record = bench_latency(llm, device, name, batch, progress.show)
    print(latency_summary(record))
    write_json(record, args.json)
    return EXIT_INTERRUPTED if record.was_interrupted else 0


def with_room_for(batch_size: int, settings: dict[str, Any]) -> dict[str, Any]:
    """The whole batch runs at once, or its latency would be that of a queue."""
    from pagoda.engine.device import settled

    defaults = EngineConfig(model="")
    num_rows = settings.get("max_num_seqs", max(batch_size, defaults.num_rows))
    if num_rows < batch_size:
        raise InvalidRequest("--batch-size", f"{batch_size} is more than --max-num-seqs {num_rows}")
    own = settled(settings)
    num_tokens = own.get("max_num_batched_tokens", defaults.max_num_batched_tokens)
    num_tokens = settings.get("max_num_batched_tokens", max(num_rows, num_tokens))
    return own | {"max_num_seqs": num_rows, "max_num_batched_tokens": num_tokens}
