"""`lab help`: what there is to read, a topic of it, or how a verb is used."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys

from lab.cli import arguments as shared
from lab.cli.overview import every_verb
from lab.errors import UsageError
from lab.features.help.topics import text_of, topics
from lab.report.style import Style, style_for
from lab.spec.reading import did_you_mean

_MOST_COLUMNS = 120
"""Longer lines are hard to read."""
_LINK = re.compile(r"\[([^\]]+)\]\(([\w-]+\.md)?(?:#[\w-]+)?\)")


_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_MOST_CELLS = 3
"""What a row of a table may hold beside each other on a terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    topic = parser.add_argument("topic", nargs="?", help="a topic, or a verb (default: list the topics)")
    shared.completes(topic, "topics")


def run(arguments: argparse.Namespace) -> int:
    """Show it; on a terminal page by page."""
    name, known, verbs = arguments.topic, topics(), every_verb()
    if name in verbs and name not in known:
        from lab.cli.call import call

        return call([name, "--help"])
    if name is not None and name not in known:
        meant = did_you_mean(name, [*known, *verbs])
        raise UsageError(f"there is no topic {name!r}{meant}", "`lab help` lists topics, `lab --help` verbs")
    text = _list() if name is None else text_of(known[name])
    style = style_for(sys.stdout)
    if name is None or style.width is None:  # no terminal: as it is written, which reads well
        print(text, end="")
    else:
        _page(_rendered(text, style))
    return 0


def _list() -> str:
    lines = [f"  {name:<18}{topic.about}" for name, topic in topics().items()]
    return "topics:\n" + "\n".join(lines) + "\n\n`lab help TOPIC` shows one, `lab help VERB` how a verb is used.\n"


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
