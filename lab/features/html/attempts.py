"""The attempts of a run on its page, and on that of each of them: a row each, which leads to its own page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lab.record.layout import REPORT
from lab.record.read import Record
from lab.report.palette import VERDICTS
from lab.words import listing

_MOST_PAGES = 20


def with_pages(run: Record) -> list[Record]:
    """The earlier attempts of a run that have pages of their own once it has one: the last of them."""
    return [*run.earlier_attempts().values()][-_MOST_PAGES:]


def attempt_rows(record: Record, page: Path) -> list[dict[str, Any]]:
    """All attempts of the run; empty where there was but one.

    Args:
        record: that of the run, or of one of its attempts.
        page: where the page will be; it leads to others only from its place in the record.
    """
    run, own = record.run_of_attempt or record, page == record.path / REPORT
    paged = {run.path, *(earlier.path for earlier in with_pages(run))}
    rows = []
    for attempt in run.result().attempts:
        place = attempt.path or run.path
        here = place == record.path
        link = quote(os.path.relpath(place / REPORT, page.parent)) if own and not here and place in paged else ""
        rows.append(
            {
                "attempt": attempt,
                "tone": VERDICTS[attempt.verdict],
                "here": here,
                "link": link,
                "nodes": listing(attempt.nodes),
            }
        )
    return rows
