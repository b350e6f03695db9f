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


def attempt_rows(record: Record, page: Path) -> list[dict[str, Any]]:
    """All attempts of the run; empty where there was but one.

    Args:
        record: that of the run, or of one of its attempts.
        page: where the page will be; it leads to others only from its place in the record.
    """
    run, own = record.run_of_attempt or record, page == record.path / REPORT
    rows = []
    for attempt in run.result().attempts:
        place = run.path if attempt.number == run.number else run.attempt(attempt.number).path
        here = place == record.path
        link = quote(os.path.relpath(place / REPORT, page.parent)) if own and not here else ""
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
