"""An explanation for a person: the verdict, numbered findings, stacks below, and what is missing."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from lab.diagnosis.explain import Explanation
from lab.diagnosis.stacks import clip_stack
from lab.report.alike import alike
from lab.report.style import Style
from lab.words import clip, name_ranks

_WIDTH = 80
_STACK_LINES = 8
_MOST_STACKS = 4
_RANK = re.compile(r"\b([Rr]ank (\d+))\b(?!-)")
_SOURCE = re.compile(r"\b[\w./-]+\.py:\d+\b")


def explanation_text(explanation: Explanation, style: Style, broken: Sequence[str] = ()) -> str:
    """The explanation, wrapped at the terminal's width but never beyond 80 columns; and what was broken on purpose."""
    width = max(40, min(_WIDTH, style.width or _WIDTH))
    sign = style.verdict(explanation.verdict)
    lines = [
        f"{sign}  {style.paint(explanation.scenario, 'bold')}",
        *_wrap(explanation.sentence, "  ", width, first="  "),
    ]
    for number, finding in enumerate(explanation.findings, start=1):
        told = _wrap(finding.sentence, "    ", width, first=f"{number:>2}. ")
        lines += ["", *(_painted(line, style) for line in told)]
    for sentence in broken:
        lines += ["", *(_painted(line, style) for line in _wrap(sentence, "    ", width, first="    "))]
    for ranks, stack in alike(explanation.stacks.items())[:_MOST_STACKS]:
        lines += ["", style.rank(ranks[0], name_ranks(ranks)), *_stack(stack, width)]
    if explanation.problems:
        lines += ["", style.paint("what is missing", "bold")]
        for problem in explanation.problems:
            lines += _wrap(problem, "    ", width, first="  - ")
    lines += ["", style.paint(f"run {explanation.run}", "dim")]
    return "\n".join(lines)


def _wrap(text: str, indent: str, width: int, *, first: str) -> list[str]:
    wrapper = textwrap.TextWrapper(width, first, indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)


def _painted(line: str, style: Style) -> str:
    line = _RANK.sub(lambda match: style.rank(int(match[2]), match[1]), line)
    return _SOURCE.sub(lambda match: style.paint(match[0], "bold"), line)


def _stack(stack: str, width: int) -> list[str]:
    """The end of a traceback, or the innermost frames of a stack, without the marks under the code."""
    lines = [line for line in stack.strip("\n").splitlines() if line.strip(" ^~")]
    shown = clip_stack("\n".join(lines), _STACK_LINES)
    return [clip(f"  │ {line}", width) for line in shown]
