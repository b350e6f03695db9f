"""`lab score`: how right the diagnoses of many runs are in which something was broken on purpose."""

from __future__ import annotations

import argparse

from lab.cli import arguments as shared
from lab.cli.arguments import answer

_HOWTO = """What was broken is read from the record of each run, and held against its verdict, which never sees that.

  lab score                        all runs here
  lab score .lab/runs other/runs   runs in these folders
  lab score 20261121-kill          one run

right culprit: the rank or node that it was done to was named. right kind: for something that such a fault leads to.
unharmed: the run ended well all the same, and nobody was named. noticed after: the median time until the first fact
that showed it: an end, a loss, a time-out, data that nobody acknowledged."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOWTO
    runs = parser.add_argument(
        "records", nargs="*", metavar="RUN", help="runs, suites or folders of runs (default: all runs)"
    )
    shared.completes(runs, "runs")
    shared.add_runs(parser)
    shared.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Score them; needs no engine."""
    from lab.features.records.records import earlier_records
    from lab.features.score.score import score, score_text
    from lab.record.read import list_records

    named = [record for name in arguments.records for record in earlier_records(name, arguments.runs)]
    found = score(named if arguments.records else list_records(arguments.runs))
    return answer(arguments, found.to_json, lambda style: score_text(found, style))
