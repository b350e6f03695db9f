"""The scenario and the script with numbered lines that can be linked to, in colours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape
from pygments.lexers.data import YamlLexer
from pygments.lexers.python import PythonLexer
from pygments.token import STANDARD_TYPES

from lab.features.records.records import scripts_of
from lab.record.layout import SCENARIO
from lab.record.read import Record
from lab.record.record_files import read_beginning

_LONGEST = 400_000
_MOST_TOGETHER = 1_000_000
"""Characters of all sources, and of each: to color them takes a second each million."""
_MOST_SCRIPTS = 100
_LONGEST_LINE = 20_000
"""A source with a longer line has no colors."""
_CITATION = re.compile(r"([\w./-]+\.py):(\d+)|File \"([^\"]+\.py)\", line (\d+)")


@dataclass(frozen=True)
class Source:
    """A text with the markup of each of its lines."""

    name: str
    anchor: str
    """Line N has the id `<anchor>-N`."""
    lines: list[Markup]
    cut: bool
    """Whether the text was too long to be shown whole."""


def sources(record: Record) -> list[Source]:
    """The script, or scripts, that the record holds, then the scenario."""
    named = Path(record.plan().script).name
    scripts = sorted(scripts_of(record), key=lambda name: name != named)
    texts = [(name, f"L{number}", _read(record, name)) for number, name in enumerate(scripts[:_MOST_SCRIPTS])]
    scenario = record.scenario_text()
    texts += [(SCENARIO, "Y", scenario)] if scenario else []
    found, room = [], _MOST_TOGETHER
    for name, anchor, text in texts:
        most = min(_LONGEST, room)
        found.append(_source(name, anchor, text, most))
        room -= min(len(text), most)
    return found


def cite(text: str, known: list[Source]) -> Markup:
    """The text with a link at every `file.py:12` of a source that the page shows."""
    anchors = {source.name: source.anchor for source in known}
    parts: list[Markup] = []
    at = 0
    for found in _CITATION.finditer(text):
        anchor = anchors.get(Path(found[1] or found[3]).name)
        if anchor is None:
            continue
        parts.append(escape(text[at : found.start()]))
        parts.append(Markup('<a href="#{}-{}">{}</a>').format(anchor, found[2] or found[4], found[0]))
        at = found.end()
    parts.append(escape(text[at:]))
    return Markup("").join(parts)


def _read(record: Record, name: str) -> str:
    try:
        return read_beginning(record.path, name)
    except OSError:
        return ""


def _source(name: str, anchor: str, text: str, most: int) -> Source:
    return Source(name, anchor, _coloured(name, text[:most]), len(text) > most)


def _coloured(name: str, text: str) -> list[Markup]:
    if (
        "\0" in text or max(map(len, text.split("\n"))) > _LONGEST_LINE
    ):  # nobody wrote it, and each token takes its time
        return [escape(line) for line in text.rstrip("\n").split("\n")]
    lexer = YamlLexer(stripnl=False) if name.endswith(".yaml") else PythonLexer(stripnl=False)
    lines: list[list[Markup]] = [[]]  # of each line its parts: to append to a line would copy it
    for token, value in lexer.get_tokens(text):
        while token not in STANDARD_TYPES and token.parent:
            token = token.parent
        kind = STANDARD_TYPES.get(token, "")
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                shown = escape(part)
                lines[-1].append(Markup(f'<span class="{kind}">{shown}</span>') if kind else shown)
    while lines and not lines[-1]:
        lines.pop()
    return [Markup("").join(line) for line in lines]
