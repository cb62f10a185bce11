"""`pagoda bench throughput`: how much a model gets done in this process, beside what the device allows."""

from __future__ import annotations

import argparse

from pagoda.bench.config import ThroughputConfig
from pagoda.cli.bench.offline import ENGINE_OPTIONS, add_engine_and_results, add_model, loaded
from pagoda.cli.bench.serve import EXIT_INTERRUPTED, LENGTHS
from pagoda.cli.settings import SettingOptions

EXAMPLES = """\
  pagoda bench throughput
  pagoda bench throughput smollm2 --num-prompts 32 --input-len 128 --output-len uniform:16,128 --max-num-seqs 32
  pagoda bench throughput ./model.gguf --workload seed --num-prompts 100 --repeats 1 --json seed.json
  pagoda bench throughput ./Llama-3.1-8B --device cuda --load-format dummy --workload decode256 --max-num-seqs 256
"""
WORK = SettingOptions(ThroughputConfig)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pagoda bench throughput [MODEL] [options]"
    add_model(parser)
    WORK.add_to(parser.add_argument_group("workload", LENGTHS))
    add_engine_and_results(parser)


def main(args: argparse.Namespace) -> int:
    from pagoda.cli.bench.files import write_json
    from pagoda.cli.bench.show_offline import throughput_summary

    work = ThroughputConfig(**WORK.given(args))
    with loaded(args, ENGINE_OPTIONS.given(args)) as (llm, device, name):
        from pagoda.bench.offline import make_requests
        from pagoda.bench.throughput import bench_throughput

        requests, description = make_requests(work, llm.engine.model.config.vocab_size)
        record = bench_throughput(llm, device, name, requests, description, work.repeats, not args.quiet)
    print(throughput_summary(record))
    write_json(record, args.json)
    return EXIT_INTERRUPTED if record.was_interrupted else 0
