"""`lab equal`: check that other numbers of ranks, commits, or settings compute the same.

Run the same training several times, and report the first difference beyond rounding.

  lab equal train.py --ranks 1,2,4         2 and 4 ranks, compared with 1
  lab equal train.py@HEAD~1 train.py       two commits
  lab equal gloo.yaml mpi.yaml             two scenarios: other settings, images, or backends
  lab equal train.py@v1 train.py --bisect  the first commit that differs

The script must set its seeds, and divide its batch by the number of ranks. docs/equal.md says more.

exit codes: 0 equal, 1 different, 2 refused, or a run does not pass.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from typing import Any

from lab.cli import arguments as shared
from lab.errors import UsageError
from lab.run.options import RunOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lab equal SCRIPT --ranks 1,2,4 | A B [options] [-- SCRIPT ARGUMENTS]"
    about = "a script or scenario, or two of them; FILE@COMMIT is that of a commit"
    shared.add_options(parser, "programs", metavar="PROGRAM", nargs="+", help=about, complete="scenarios")
    about = "numbers of ranks; the first one is right (default: 1,2). With two programs: one number"
    parser.add_argument("--ranks", metavar="A,B,...", help=about)
    parser.add_argument("--bisect", action="store_true", help="with two programs: find the first commit that differs")
    shared.add_options(parser, "--engine", "--timeout", "--backend", "--env", "--image", "--runs", "--json", "--quiet")
    parser.set_defaults(rest=[])


def run(arguments: argparse.Namespace) -> int:
    """Compare; return 1 if anything differs."""
    from lab.features.equal import runs

    words, ranks = arguments.programs, _read_ranks(arguments.ranks)
    if len(words) > 2:
        raise UsageError(f"lab equal compares one or two programs, not {len(words)}", "run it for each pair")
    if arguments.bisect and len(words) < 2:
        raise UsageError("--bisect needs two programs", f"name a right commit first: {words[0]}@COMMIT {words[0]}")
    if len(words) == 2 and len(ranks) > 1:
        raise UsageError(f"--ranks: found {arguments.ranks}; allowed with two programs: one number, such as 2")

    def open_one(word: str, stack: Any) -> Any:
        scenario = runs.open_version(word, stack)
        return replace(scenario, args=(*scenario.args, *arguments.rest), env={**scenario.env, **dict(arguments.env)})

    asked = {"image": arguments.image} if arguments.image else {}
    options = RunOptions(runs=arguments.runs, timeout_s=arguments.timeout_s, backend=arguments.backend)
    with shared.Progress(quiet=arguments.quiet or arguments.json) as display:
        how = {"engine": arguments.engine, "options": options, "announce": display.announce, "asked": asked}
        compared, commit = runs.compare_programs(words, open_one, ranks, arguments.bisect, **how)
    is_equal = all(one.is_equal for one in compared)
    if (first := compared[0].difference) is not None and first.cause == "no steps":
        raise UsageError(first.sentence, "lab equal compares training: backward passes and steps of an optimizer")
    comparisons = [{**asdict(one), "equal": one.is_equal} for one in compared]
    data = {"equal": is_equal, "commit": commit or None, "comparisons": comparisons}
    shared.print_answer(arguments, data, lambda style: runs.comparisons_text(compared, commit, style.paint))
    return 0 if is_equal else 1


def _read_ranks(text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise UsageError(f"--ranks: found {text!r}; allowed: numbers with commas, such as 1,2,4") from None
