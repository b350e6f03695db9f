"""Write one page with all runs of a suite, with a link to the report of each."""

from __future__ import annotations

import argparse
import os
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from lab.cli.call import Parser
from lab.errors import UsageError
from lab.features.html import REPORT
from lab.features.html.page import write_report
from lab.features.html.verb import announce_page
from lab.features.html.write import render_page, write_page
from lab.features.records.records import Suite, find_suite
from lab.features.suite import SUITE_REPORT
from lab.record.layout import RESULT
from lab.record.read import Record, Turn
from lab.report.style import VERDICTS
from lab.words import format_bytes, format_count, join_words


class SuiteReport(NamedTuple):
    """A written page, as `lab report --suite --json` prints it."""

    path: Path
    suite: str
    bytes: int
    runs: tuple[str, ...]
    verdicts: dict[str, int]


def write_suite(suite: Suite, output: Path | None = None) -> SuiteReport:
    """Write the page of a suite, and the reports of its runs that are missing or outdated.

    Args:
        suite: Its records.
        output: The file, or a folder for it; None: `suite.html` next to the records.

    Raises:
        RecordError: A file cannot be written.
    """
    path = output if output is not None else suite.records[0].path.parent
    path = path / SUITE_REPORT if path.is_dir() else path
    for record in suite.records:
        if not _has_report(record):
            write_report(record)
    results = [record.result() for record in suite.records]
    turns = [record.plan().turn or Turn() for record in suite.records]
    counts = Counter[str](result.verdict for result in results)
    verdicts = {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}
    times = [result.duration_s or 0.0 for result in results]
    links = [quote(os.path.relpath(record.path / REPORT, path.parent)) for record in suite.records]
    rows = list(zip(results, turns, links, strict=True))
    missing = suite.planned - len({turn.number for turn in turns})
    left_none = f"{format_count(missing, 'run')} of {suite.planned} left no record: not started, or removed since."
    page = render_page(
        "suite",
        "suite",
        {},
        name=suite.name,
        rows=rows,
        tones=VERDICTS,
        verdicts=[(VERDICTS[verdict], verdict, count) for verdict, count in verdicts.items()],
        worst=VERDICTS[next((verdict for verdict in verdicts if verdict != "passed"), "passed")],
        times=times,
        flaky=join_words(turn.case for result, turn, _ in rows if turn.attempt > 1 and result.passed),
        missing=left_none if missing > 0 else "",
    )
    write_page(page, path)
    return SuiteReport(path, suite.name, len(page), tuple(record.run for record in suite.records), verdicts)


def _has_report(record: Record) -> bool:
    """Return whether there is a report as new as the result."""
    with suppress(OSError):
        report, result = (os.lstat(record.path / name) for name in (REPORT, RESULT))
        return stat.S_ISREG(report.st_mode) and report.st_mtime_ns >= result.st_mtime_ns
    return False


# -- `lab report --suite`


def add_arguments(parser: Parser) -> None:
    """Add the option to `lab report`."""
    about = "report all runs of one `lab test`, or of one `lab run` of several scenarios; RUN is one of them"
    parser.one_of().add_argument("--suite", action="store_true", help=about)


def run(arguments: argparse.Namespace, verb: Callable[[argparse.Namespace], int]) -> int:
    """Write the page if `--suite` is given; needs no engine and no network."""
    if not arguments.suite:
        return verb(arguments)
    if arguments.attempt is not None:
        raise UsageError("--attempt needs a single run", "use `lab report RUN --attempt N`")
    suite = write_suite(find_suite(arguments.run, arguments.runs), arguments.output)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in suite.verdicts.items())
    data = {**suite._asdict(), "path": str(suite.path)}
    return announce_page(arguments, suite.path, data, [f"{format_bytes(suite.bytes)}, {counts}"])
