"""A result as a notebook shows it: the verdict, what explains it, timeline, pictures and output, as plain HTML.

No scripts and no style sheets, so that it shows in JupyterLab, in VS Code and on nbviewer alike; text keeps the colour
of the page around it, and so suits light and dark ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape as escape_markup

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.explain import explain
from lab.features.html.page import choose, kind_of
from lab.features.html.timelines import timeline_svg
from lab.features.pictures.model import picture_of
from lab.features.pictures.svg import svg_of
from lab.features.timeline.lanes import lanes_of
from lab.features.timeline.svg import rank_colour
from lab.record.read import Record
from lab.record.result import Result
from lab.report.harmless import plain
from lab.report.style import VERDICTS
from lab.report.verdict import unmet_sentences
from lab.trace.steps import Step
from lab.words import clip

_MOST_PICTURES = 6
_MOST_LINES = 200
_OPEN_LINES = 12
"""This many lines of output, and this many pictures, are open at first; more have to be opened."""
_OPEN_PICTURES = 2
_MOST_SENTENCES = 10
_OPEN_SENTENCES = 3
_MONO = "font:12px/1.45 ui-monospace,monospace;white-space:pre-wrap;margin:4px 0"


def result_html(result: Result) -> str:
    """The result as HTML; of one whose record is gone, what it says itself."""
    sign, _, colour, _ = VERDICTS[result.verdict]
    head = (
        f'<div><b style="color:{colour}">{sign} {escape(result.verdict)}</b> '
        f"<b>{escape(result.scenario)}</b> {escape(result.reason)}</div>"
    )
    parts = [head, _culprit(result), _unmet(result)]
    if result.path is not None and result.path.is_dir():
        parts += _recorded(result, Record(path=result.path))
    else:
        parts.append(_notes(result))
    if result.path is not None:
        parts.append(f'<div style="opacity:.6;font-size:12px">record: {escape(str(result.path))}</div>')
    box = f"border-left:3px solid {colour};padding:2px 0 2px 12px;margin:4px 0"
    return f'<div style="{box}">{"".join(parts)}</div>'


def _recorded(result: Result, record: Record) -> Iterator[str]:
    """What the record of a run adds to its result, with the notes in their place."""
    evidence = read_evidence(record)
    findings = explain(record, evidence).findings
    yield _sentences(result, [finding.sentence for finding in findings[:_MOST_SENTENCES]])
    lines = _output(record)
    if lines:
        more = f"<i>… the last {_MOST_LINES} of {len(lines)} lines</i>\n" if len(lines) > _MOST_LINES else ""
        last = ((_name(rank, len(result.ranks)), escape(clip(text, 500))) for rank, text in lines[-_MOST_LINES:])
        shown = "".join(f"{name} {text}\n" for name, text in last)
        yield _fold("Output", f'<pre style="{_MONO}">{more}{shown}</pre>', len(lines) <= _OPEN_LINES)
    yield _notes(result)
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", f"lab-{result.run}")
    lanes = lanes_of(sorted(evidence.trace.ranks), [evidence.trace], [result], findings)
    timeline = timeline_svg(evidence.trace, evidence.steps, lanes, until=evidence.over, prefix=prefix)
    if timeline:
        yield _fold("Timeline", timeline, is_open=True)
    for number, step in enumerate(_worth_a_picture(evidence.steps)):
        picture = svg_of(picture_of(step, result.expectations, len(result.ranks)))
        yield _fold(f"Step {step.number}: {step.title}", picture, number < _OPEN_PICTURES)


def _worth_a_picture(steps: Sequence[Step]) -> list[Step]:
    """What went wrong, and the first of each kind that moves data; a barrier alone shows nothing."""
    moving = [step for step in steps if step.state != "completed" or step.operation.moves_data]
    kinds = {kind_of(step): step for step in reversed(moving)}
    wrong = [step for step in moving if step.state != "completed"]
    wanted = {step.number for step in (*wrong, *kinds.values())}
    return choose([step for step in moving if step.number in wanted], _MOST_PICTURES)


def _output(record: Record) -> list[tuple[int, str]]:
    """Every line in the order of arrival, with its rank."""
    begun: dict[int, str] = {}
    lines = []
    for piece in record.output():
        *whole, rest = (begun.get(piece.rank, "") + piece.data.decode("utf-8", "replace")).split("\n")
        lines += [(piece.rank, text) for text in whole]
        begun[piece.rank] = rest
    return lines + [(rank, text) for rank, text in begun.items() if text]


def _culprit(result: Result) -> str:
    culprit = result.culprit
    if culprit is None or result.passed:
        return ""
    traceback = f'<pre style="{_MONO}">{escape(culprit.traceback)}</pre>' if culprit.traceback else ""
    return f"<div>First culprit: <b>{escape(culprit.who)}</b></div>{traceback}"


def _unmet(result: Result) -> str:
    unmet = [sentence for sentence in unmet_sentences(result) if sentence not in result.reason]
    return _list(unmet[:_MOST_SENTENCES], len(unmet))


def _sentences(result: Result, found: Sequence[str]) -> str:
    told = [text for text in found if text.rstrip(".") != result.reason.rstrip(".")]
    if len(told) <= _OPEN_SENTENCES:
        return _list(told)
    return _fold("What happened", _list(told), result.culprit is not None and not result.passed)


def _list(sentences: Iterable[str], count: int = 0) -> str:
    items = [f"<li>{escape(sentence)}</li>" for sentence in sentences]
    if count > len(items):
        items.append(f"<li>and {count - len(items)} more</li>")
    return f'<ul style="margin:4px 0">{"".join(items)}</ul>' if items else ""


def _notes(result: Result) -> str:
    """What ranks noted: a row for each rank."""
    names = list(dict.fromkeys(name for rank in result.ranks for name in rank.notes))
    if not names:
        return ""
    cell = 'style="text-align:left;padding:1px 12px 1px 0"'
    head = "".join(f"<th {cell}>{escape(name)}</th>" for name in ("", *names))
    rows = []
    for rank in result.ranks:
        values = (clip(str(rank.notes[name]), 60) if name in rank.notes else "" for name in names)
        cells = "".join(f"<td {cell}>{escape(value)}</td>" for value in values)
        rows.append(f"<tr><td {cell}>{_name(rank.rank, len(result.ranks))}</td>{cells}</tr>")
    table = f'<table style="font-size:12px;margin:0"><tr>{head}</tr>{"".join(rows)}</table>'
    return _fold("Notes", table, len(rows) <= _OPEN_LINES)


def _name(rank: int, world_size: int) -> str:
    colour = rank_colour(rank, world_size) if rank >= 0 else "#888"
    return f'<b style="color:{colour}">{f"rank {rank}" if rank >= 0 else "check"}</b>'


def escape(text: str) -> str:
    """Text of scripts: neither markup nor a character that acts."""
    return escape_markup(plain(text))


def _fold(title: str, inner: str, is_open: bool) -> str:
    summary = f'<summary style="cursor:pointer;opacity:.75;font-size:12px">{escape(title)}</summary>'
    return f'<details{" open" if is_open else ""} style="margin:6px 0">{summary}{inner}</details>'
