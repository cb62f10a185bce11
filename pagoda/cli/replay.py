"""`pagoda replay`: feed a decision log to the scheduler again and compare every plan and every decision."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """\
  pagoda run smollm2 "Hello" --decision-log hello.log
  pagoda replay hello.log
"""

EXIT_DIFFERENT = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", help="a file that --decision-log or LLM.save_decision_log wrote")


def main(args: argparse.Namespace) -> int:
    from pagoda.scheduler.log import load_log
    from pagoda.scheduler.replay import replay

    report = replay(load_log(Path(args.log)))
    if report.first_difference:
        print(f"{report.num_plans} plans replayed; the first difference: {report.first_difference}")
        return EXIT_DIFFERENT
    print(f"{report.num_plans} plans and {report.num_decisions} decisions replayed: every plan reproduced")
    return 0
