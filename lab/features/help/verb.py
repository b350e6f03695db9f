"""`lab help`: list topics, show one (a page of the docs), or show how a verb is used."""

from __future__ import annotations

import argparse
import os
import pydoc
import re
import sys
from pathlib import Path
from typing import NamedTuple

from lab.cli import arguments as shared
from lab.cli.overview import list_all_verbs
from lab.errors import UsageError
from lab.feature import bundled_path
from lab.report.style import Style, style_for
from lab.spec.reading import did_you_mean


class Topic(NamedTuple):
    """Describe a page, or a section of a page, of the docs."""

    about: str
    page: str
    """File in the docs."""
    section: str = ""
    """Anchor of a heading; empty: the whole page."""


_NAMED = {
    "scenario": Topic("every key of a scenario", "scenario-reference.md"),
    "expect": Topic("the expected results of a run", "scenario-reference.md", "expect"),
    "notes": Topic("values that ranks must note", "scenario-reference.md", "expected-notes"),
    "calls": Topic("the expected calls of ranks", "scenario-reference.md", "expected-calls"),
    "questions": Topic("the questions of a lesson", "scenario-reference.md", "questions"),
    "editor": Topic("completion and checks of scenarios in an editor", "scenario-reference.md", "in-an-editor"),
    "exit-codes": Topic("the exit codes of commands", "command-line.md", "exit-codes"),
    "environment": Topic("variables that the lab reads, and variables of ranks", "command-line.md", "environment"),
    "files": Topic("the folders of records, clusters, and caches", "command-line.md", "files"),
    "engines": Topic("containers or processes: the differences", "local-engine.md"),
    "gpus": Topic("nodes with GPUs, nccl, and untested parts", "gpu.md"),
    "data": Topic("folders that ranks read", "packages.md", "data"),
    "python": Topic("clusters, runs, and lessons from Python", "python-api.md"),
    "github": Topic("a workflow for GitHub Actions", "ci-reference.md", "github-actions"),
    "gitlab": Topic("a pipeline for GitLab", "ci-reference.md", "gitlab"),
    "uninstall": Topic("how to remove the lab", "install.md", "remove-it"),
    "security": Topic("what a script can and cannot do", "untrusted-scripts.md"),
    "traffic": Topic("bytes and bandwidths, Chrome, Perfetto, torchfrtrace, diff", "trace-exports.md"),
    "ddp": Topic("every call that DDP makes", "ddp-story.md"),
    "lessons": Topic("every lesson", "scenarios.md"),
}
_MOST_LINES = 10
_FENCE = re.compile(r" *(```|~~~)")
_COMMENT = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)


def list_topics() -> dict[str, Topic]:
    """Return topics by name: those of `_NAMED`, and each other page by the name of its file."""
    whole = {topic.page for topic in _NAMED.values() if not topic.section}
    others = [page for page in docs_folder().glob("*.md") if page.name not in whole]
    titles = {page: page.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ").strip() for page in others}
    return dict(sorted({**_NAMED, **{page.stem: Topic(title, page.name) for page, title in titles.items()}}.items()))


def text_of(topic: Topic) -> str:
    """Return a page or section as Markdown."""
    page = (docs_folder() / topic.page).read_text(encoding="utf-8")
    return _COMMENT.sub("", _section(page, topic.section) if topic.section else page).strip() + "\n"


def find_word(word: str) -> str:
    """Return the first section whose heading has a word, else rows of tables that begin with it, else lines with it."""
    lines, row, rows = list[str](), re.compile(rf"\| `-{{0,2}}{re.escape(word)}\b.*"), list[str]()
    for page in sorted(docs_folder().glob("*.md")):
        text = page.read_text(encoding="utf-8")
        headings = re.findall(rf"^##+ +(.*\b{re.escape(word)}\b.*)$", text, re.IGNORECASE | re.MULTILINE)
        if headings:
            return _section(text, anchor_of(headings[0]))
        rows += [f"{page.name}: {line}\n" for line in text.splitlines() if row.match(line)]
        lines += [f"{page.name}: {line}\n" for line in text.splitlines() if re.search(rf"\b{re.escape(word)}\b", line)]
    return "".join(rows or lines[:_MOST_LINES])


def docs_folder() -> Path:
    """Return the folder of the bundled docs."""
    return bundled_path("docs")


def _section(page: str, anchor: str) -> str:
    """Return the text from a heading to the next one of its level."""
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
    """Return the anchor of a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


_MOST_COLUMNS = 120
"""Longer lines are hard to read."""
_LINK = re.compile(r"\[([^\]]+)\]\((?:[\w-]+\.md)?(?:#[\w-]+)?\)")
"""A link to another page, which a terminal cannot follow."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_options(parser, "topic", nargs="?", help="a topic or a verb (default: list topics)", complete="topics")


def run(arguments: argparse.Namespace) -> int:
    """Show the topic; on a terminal, with a pager."""
    name, known, verbs = arguments.topic, list_topics(), list_all_verbs()
    if name in verbs and name not in known:
        from lab.cli.call import run_verb

        return run_verb([name, "--help"])
    passage = find_word(name) if name is not None and name not in known and len(name) > 2 else ""
    if name is not None and name not in known and not passage:
        meant = did_you_mean(name, [*known, *verbs])
        raise UsageError(f"there is no topic {name!r}{meant}", "`lab help` lists topics, and `lab --help` lists verbs")
    lines = [f"  {one:<21}{topic.about}\n" for one, topic in known.items()]
    how = "\n`lab help TOPIC` shows one, `lab help VERB` how a verb is used.\n"
    text = "".join(["topics:\n", *lines, how]) if name is None else passage or text_of(known[name])
    style = style_for(sys.stdout)
    if name is None or style.width is None:  # not a terminal: print the Markdown
        print(text, end="")
    else:
        os.environ.setdefault("LESS", "FRX")  # less keeps short text on the screen, and shows colours
        pydoc.pager(_rendered(text, style))
    return 0


def _rendered(text: str, style: Style) -> str:
    """Render Markdown for a terminal."""
    import io

    from rich.console import Console
    from rich.markdown import Markdown

    width = min(style.width or _MOST_COLUMNS, _MOST_COLUMNS)
    console = Console(file=io.StringIO(), force_terminal=style.colour, width=width, no_color=not style.colour)
    console.print(Markdown(_LINK.sub(r"\1", text), hyperlinks=False))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in written.splitlines()) + "\n"
