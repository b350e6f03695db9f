"""`lab help`: what there is to read, a topic of it (a page of the docs), or how a verb is used."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from lab.cli import arguments as shared
from lab.cli.overview import every_verb
from lab.errors import UsageError
from lab.feature import bundled
from lab.report.style import Style, style_for
from lab.spec.reading import did_you_mean


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
    titles = {page: page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").strip() for page in others}
    return {**_NAMED, **{page.stem: Topic(title, page.name) for page, title in titles.items()}}


def text_of(topic: Topic) -> str:
    """The page or section, as Markdown."""
    page = (docs_folder() / topic.page).read_text(encoding="utf-8")
    return _COMMENT.sub("", _section(page, topic.section) if topic.section else page).strip() + "\n"


def docs_folder() -> Path:
    """The pages that come with the lab."""
    return bundled("docs")


def _section(page: str, anchor: str) -> str:
    """From a heading to the next one of its rank."""
    lines, begin, level, fenced = page.splitlines(keepends=True), -1, 0, False
    for number, line in enumerate(lines):
        fenced ^= bool(_FENCE.match(line))
        heading = None if fenced else re.match(r"(#+) +(.+)", line)
        if heading and begin < 0 and anchor_of(heading[2]) == anchor:
            begin, level = number, len(heading[1])
        elif heading and begin >= 0 and len(heading[1]) <= level:
            return "".join(lines[begin:number])
    return "".join(lines[begin:])


def anchor_of(heading: str) -> str:
    """What a link to a heading ends with."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


_MOST_COLUMNS = 120
"""Longer lines are hard to read."""
_LINK = re.compile(r"\[([^\]]+)\]\(([\w-]+\.md)?(?:#[\w-]+)?\)")


_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_MOST_CELLS = 3
"""What a row of a table may hold beside each other on a terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add(parser, "topic", nargs="?", help="a topic, or a verb (default: list the topics)", complete="topics")


def run(arguments: argparse.Namespace) -> int:
    """Show it; on a terminal page by page."""
    name, known, verbs = arguments.topic, topics(), every_verb()
    if name in verbs and name not in known:
        from lab.cli.call import call

        return call([name, "--help"])
    if name is not None and name not in known:
        meant = did_you_mean(name, [*known, *verbs])
        raise UsageError(f"there is no topic {name!r}{meant}", "`lab help` lists topics, `lab --help` verbs")
    lines = [f"  {one:<18}{topic.about}\n" for one, topic in known.items()]
    how = "\n`lab help TOPIC` shows one, `lab help VERB` how a verb is used.\n"
    text = "".join(["topics:\n", *lines, how]) if name is None else text_of(known[name])
    style = style_for(sys.stdout)
    if name is None or style.width is None:  # no terminal: as it is written, which reads well
        print(text, end="")
    else:
        _page(_rendered(text, style))
    return 0


def _rendered(text: str, style: Style) -> str:
    """Markdown as a terminal shows it."""
    import io

    from rich.console import Console
    from rich.markdown import Markdown

    width = min(style.width or _MOST_COLUMNS, _MOST_COLUMNS)
    console = Console(file=io.StringIO(), force_terminal=style.colour, width=width, no_color=not style.colour)
    text = _TABLE.sub(_as_list, _LINK.sub(_topic_of_link, text))
    console.print(Markdown(text, hyperlinks=False))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in written.splitlines()) + "\n"


def _topic_of_link(link: re.Match[str]) -> str:
    """What a terminal shows of a link: for one to a page its topic; what is on the same page is at hand."""
    pages = {topic.page: name for name, topic in reversed(topics().items())}
    return f"{link[1]} (`lab help {pages[link[2]]}`)" if link[2] in pages else link[1]


def _as_list(table: re.Match[str]) -> str:
    """A table that is too wide for a terminal as a list: an item for each row, a line for each of its cells."""
    heads, _, *rows = ([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table[0].splitlines())
    if len(heads) <= _MOST_CELLS:
        return table[0]
    items = [
        [f"- {row[0]}: {row[1]}", *(f"*{head}*: {cell}" for head, cell in zip(heads[2:], row[2:], strict=True))]
        for row in rows
    ]
    return "".join("  \n  ".join(item) + "\n" for item in items)


def _page(text: str) -> None:
    """Show it in the pager of whoever calls; all at once where there is none."""
    environment = {"LESS": "FRX", **os.environ}  # what fits is left on the screen, colours are colours
    try:
        command = shlex.split(os.environ.get("PAGER") or "less")
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    except (OSError, ValueError, IndexError):
        print(text, end="")
        return
    while pager.poll() is None:
        try:
            pager.communicate(text.encode(errors="replace"))
        except KeyboardInterrupt:  # is for the pager
            continue
