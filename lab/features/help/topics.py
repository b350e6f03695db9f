"""The topics of `lab help`: pages of the docs, which come with the lab, and sections of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lab.carried import carried


class Topic(NamedTuple):
    """What can be read about."""

    about: str
    page: str
    """File of the docs."""
    section: str = ""
    """The anchor of a heading; empty: the whole page."""


_NAMED = {
    "scenario": Topic("every key of a scenario", "scenario-reference.md"),
    "expect": Topic("what must come out of a run", "scenario-reference.md", "expect"),
    "notes": Topic("values that ranks must note", "scenario-reference.md", "expected-notes"),
    "calls": Topic("what ranks must have called", "scenario-reference.md", "expected-calls"),
    "snapshots": Topic("calls that later runs are held against", "snapshots.md"),
    "questions": Topic("what a lesson asks", "scenario-reference.md", "questions"),
    "editor": Topic("completion and checks of scenarios in an editor", "scenario-reference.md", "in-an-editor"),
    "exit-codes": Topic("what the exit code of a command says", "command-line.md", "exit-codes"),
    "environment": Topic("variables that the lab reads, and those that ranks find", "command-line.md", "environment"),
    "files": Topic("where records, clusters and caches are kept", "command-line.md", "files"),
    "slurm": Topic("nodes that Slurm gives: what to say, what is given back", "slurm.md"),
    "engines": Topic("containers or processes: what differs", "local-engine.md"),
    "gpus": Topic("nodes with GPUs, nccl, and what was never tried", "gpu.md"),
    "packages": Topic("what scripts need besides torch: packages, images", "packages.md"),
    "data": Topic("folders that ranks read", "packages.md", "data"),
    "pytest": Topic("tests that run on nodes: fixtures, scenarios, options", "pytest.md"),
    "python": Topic("clusters, runs and lessons from Python", "python-api.md"),
    "functions": Topic("functions and tests that run on every rank", "functions.md"),
    "ci": Topic("many scenarios at once, and in GitHub Actions, in GitLab, anywhere", "ci.md"),
    "github": Topic("a workflow for GitHub Actions", "ci.md", "github-actions"),
    "gitlab": Topic("a pipeline for GitLab", "ci.md", "gitlab"),
    "terminal": Topic("breakpoint(), progress bars, standard input", "terminal.md"),
    "warm": Topic("why a run takes a tenth of a second", "warm.md"),
    "launchers": Topic("what starts the workers: the lab, or torchrun", "launchers.md"),
    "security": Topic("what a script can and cannot do", "untrusted-scripts.md"),
    "grading": Topic("points for what many people handed in", "grading.md"),
    "air-gapped": Topic("without a registry and an index", "air-gapped.md"),
    "watch": Topic("a run as it happens", "watch.md"),
    "report": Topic("a run as one page", "report.md"),
    "pictures": Topic("what the pictures of calls show", "pictures.md"),
    "explain": Topic("what explanations say, and what they rest on", "explain.md"),
    "record": Topic("every file of a record", "record.md"),
    "trace": Topic("what is recorded of every call", "trace.md"),
    "traffic": Topic("bytes and bandwidths, Perfetto, Chrome, torchfrtrace, simulators, diff", "trace-exports.md"),
    "dumps": Topic("a job that hung anywhere: its flight recorder dumps as a record", "dumps.md"),
    "projection": Topic("step times of larger worlds, from a run on record", "projection.md"),
    "ddp": Topic("every call that DDP makes", "ddp-story.md"),
    "lessons": Topic("every lesson", "scenarios.md"),
}
_FENCE = re.compile(r" *(```|~~~)")
_COMMENT = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)


def topics() -> dict[str, Topic]:
    """By name: those above, and every other page by the name of its file."""
    named = {topic.page for topic in _NAMED.values()}
    others = sorted(page for page in docs_folder().glob("*.md") if page.name not in named)
    return {**_NAMED, **{page.stem: Topic(_title(page), page.name) for page in others}}


def _title(page: Path) -> str:
    with page.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()


def text_of(topic: Topic) -> str:
    """The page or section, as Markdown."""
    page = (docs_folder() / topic.page).read_text(encoding="utf-8")
    text = _section(page, topic.section) if topic.section else page
    return _COMMENT.sub("", text).strip() + "\n"


def docs_folder() -> Path:
    """The pages that come with the lab."""
    return carried("docs")


def _section(page: str, anchor: str) -> str:
    """From a heading to the next one of its rank."""
    lines = page.splitlines(keepends=True)
    headings = list(_headings(lines))
    at, level, _ = next(heading for heading in headings if heading[2] == anchor)
    end = next((line for line, other, _ in headings if line > at and other <= level), len(lines))
    return "".join(lines[at:end])


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Line, rank and anchor of each."""
    fenced = False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (found := re.match(r"(#+) +(.+)", line)):
            yield number, len(found[1]), anchor_of(found[2])


def anchor_of(heading: str) -> str:
    """What a link to a heading ends with."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")
