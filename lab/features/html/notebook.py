"""A result in a notebook: verdict, explanation, timeline, pictures, and output as plain HTML.

It has no scripts and no style sheets, so that JupyterLab, VS Code, and nbviewer show it alike. Text keeps the color of
the page around it, which suits light and dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lab.diagnosis.evidence import read_evidence
from lab.diagnosis.explain import explain_run
from lab.features.html.contents import read_log_lines
from lab.features.html.page import choose_steps
from lab.features.html.timelines import timeline_svg
from lab.features.html.write import fill_template
from lab.features.pictures.choice import step_kind
from lab.features.pictures.model import picture_of
from lab.features.pictures.svg import svg_of
from lab.features.timeline.lanes import lanes_of
from lab.features.timeline.svg import rank_colour
from lab.record.read import Record
from lab.record.result import Result
from lab.report.sanitize import sanitize_plain
from lab.report.style import VERDICTS
from lab.report.verdict import unmet_sentences
from lab.trace.steps import Step
from lab.words import clip_end

_MOST_PICTURES = 6
_MOST_LINES = 200
_MOST_OPEN = 12
"""The number of lines of output, or rows of notes, that are visible at first; readers open the rest."""
_MOST_SENTENCES = 10


def result_html(result: Result) -> str:
    """Render a result as HTML; if its record is gone, only what the result itself holds."""
    record = Record(path=result.path) if result.path is not None and result.path.is_dir() else None
    return fill_template(
        "notebook",
        {"plain": sanitize_plain, "clip": clip_end, "colour": rank_colour},
        most_lines=_MOST_LINES,
        most_open=_MOST_OPEN,
        most_sentences=_MOST_SENTENCES,
        result=result,
        tone=VERDICTS[result.verdict],
        unmet=[sentence for sentence in unmet_sentences(result) if sentence not in result.reason],
        notes=list(dict.fromkeys(name for rank in result.ranks for name in rank.notes)),
        **(_record_parts(result, record) if record is not None else {}),
    )


def _record_parts(result: Result, record: Record) -> dict[str, Any]:
    """Return what the record of a run adds to its result."""
    evidence = read_evidence(record)
    explanation = explain_run(record, evidence)
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", f"lab-{result.run}")
    lanes = lanes_of(sorted(evidence.trace.ranks), [evidence.trace], [result], explanation.findings)
    count, drawn = len(result.ranks), _choose_drawn_steps(evidence.steps)
    return {
        "sentences": explanation.new_sentences[:_MOST_SENTENCES],
        "lines": read_log_lines(record)[0],
        "timeline": timeline_svg(evidence.trace, evidence.steps, lanes, until=evidence.end_s, prefix=prefix),
        "pictures": [
            (f"Step {step.number}: {step.title}", svg_of(picture_of(step, result.expectations, count)))
            for step in drawn
        ],
    }


def _choose_drawn_steps(steps: Sequence[Step]) -> list[Step]:
    """Return the broken steps, and the first of each kind that moves data; a barrier alone shows nothing."""
    moving = [step for step in steps if step.state != "completed" or step.operation.moves_data]
    wanted = {step.number for step in {step_kind(step): step for step in reversed(moving)}.values()}
    return choose_steps([step for step in moving if step.state != "completed" or step.number in wanted], _MOST_PICTURES)
