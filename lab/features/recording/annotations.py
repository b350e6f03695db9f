"""Annotate lines of a pull request with verdicts, in the commands that GitHub reads from the output of a job."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from lab.diagnosis.stacks import find_location, find_raised
from lab.record.result import Result
from lab.report.sanitize import sanitize_plain

_HEADINGS = {"failed": "error", "hung": "error", "timeout": "error"}


def annotations_text(results: Iterable[Result]) -> str:
    """Return a line for each result with a place in the user's code; empty outside of GitHub's jobs.

    Paths are relative to the checkout, which contains the current folder.
    """
    top = os.environ.get("GITHUB_WORKSPACE", "") if os.environ.get("GITHUB_ACTIONS") == "true" else ""
    lines = list[str]()
    for result in results if top else ():
        file, _, line = _location_of(result).rpartition(":")
        path = os.path.relpath(Path.cwd() / file, os.path.realpath(top))
        if file and not path.startswith(".."):
            title = f"lab: {result.verdict} in {result.scenario}"
            options = ",".join((f"file={_escaped(path)}", f"line={line}", f"title={_escaped(title)}"))
            heading = _HEADINGS.get(result.verdict, "warning")
            lines.append(f"::{heading} {options}::{sanitize_plain(result.reason).replace('%', '%25')}\n")
    return "".join(lines)


def _location_of(result: Result) -> str:
    """Return `train.py:41`: where the culprit failed or stood, else the first line of a finding; empty if unknown."""
    folder = result.path or Path()
    for rank in result.ranks:
        if result.culprit is not None and rank.rank == result.culprit.rank:
            for location in (find_raised(rank.traceback, folder), find_location(rank.stack, folder)):
                if location is not None and location.own:
                    return location.at
    return next((line for finding in result.findings for line in finding["facts"].get("lines", ())), "")


def _escaped(text: str) -> str:
    """Return a text as the value of an option."""
    text = sanitize_plain(text)
    for letter in "%:,":
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text
