"""`lab help`: list the pages of the docs, show one or a section, or show how a verb is used."""

from __future__ import annotations

import argparse
import os
import pydoc
import re
import sys
from pathlib import Path

from lab.cli import arguments as shared
from lab.cli.overview import list_all_verbs
from lab.errors import UsageError
from lab.feature import bundled_path
from lab.report.style import Style, style_for
from lab.spec.reading import did_you_mean

_MOST_LINES = 10
_FENCE = re.compile(r" *(```|~~~)")
_COMMENT = re.compile(r"^<!--.*?-->\n?", re.MULTILINE | re.DOTALL)


def list_topics() -> dict[str, str]:
    """Return the title of each page of the docs, by the name of its file."""
    return {name: text.partition("\n")[0].lstrip("# ") for name, text in read_pages().items()}


def read_pages() -> dict[str, str]:
    """Return the Markdown of each page of the docs, by the name of its file."""
    pages = sorted(docs_folder().glob("*.md"))
    return {page.stem: _COMMENT.sub("", page.read_text(encoding="utf-8")).strip() + "\n" for page in pages}


def find_word(word: str) -> str:
    """Return the section whose heading is a word or has it, else rows of tables that begin with it, else lines."""
    pages, has_word = read_pages(), re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE)
    headings = [
        (anchor_of(heading), page) for page in pages.values() for heading in re.findall(r"(?m)^##+ +(.+)$", page)
    ]
    for anchor, page in sorted(headings, key=lambda heading: heading[0] != word.lower()):
        if has_word.search(anchor):
            return _section(page, anchor)
    lines = [f"{name}.md: {line}\n" for name, page in pages.items() for line in page.splitlines()]
    rows = [line for line in lines if re.search(rf": \| `-{{0,2}}{re.escape(word)}\b", line)]
    return "".join(rows or list(filter(has_word.search, lines))[:_MOST_LINES])


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
    shared.add_options(
        parser,
        "topic",
        nargs="?",
        help="a topic, a word of a heading, or a verb (default: list topics)",
        complete="topics",
    )


def run(arguments: argparse.Namespace) -> int:
    """Show the topic; on a terminal, with a pager."""
    name, pages, verbs = arguments.topic, read_pages(), list_all_verbs()
    if name in verbs and name not in pages:
        from lab.cli.call import run_verb

        return run_verb([name, "--help"])
    if name is None:
        lines = [f"  {one:<21}{title}\n" for one, title in list_topics().items()]
        how = "\n`lab help TOPIC` shows one, `lab help WORD` a section, `lab help VERB` how a verb is used.\n"
        print("".join(["topics:\n", *lines, how]), end="")
        return 0
    text = pages.get(name) or (find_word(name) if len(name) > 2 else "")
    if not text:
        meant = did_you_mean(name, [*pages, *verbs])
        raise UsageError(f"there is no topic {name!r}{meant}", "`lab help` lists topics, and `lab --help` lists verbs")
    style = style_for(sys.stdout)
    if style.width is None:  # not a terminal: print the Markdown
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
