"""A result in words: the verdict first, then what explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.report.style import Style
from lab.words import clip

_MOST_EXPECTATIONS = 10


def verdict_text(result: Mapping[str, Any], style: Style) -> str:
    """The verdict, the reason, the culprit's last words and the expectations that were not met.

    Args:
        result: as in `result.json`.
        style: how to paint it.
    """
    lines = [f"{style.verdict(result['verdict'])}  {style.paint(result['scenario'], 'bold')}  {result['reason']}"]
    culprit = result.get("culprit")
    if culprit and culprit.get("traceback") and result["verdict"] != "passed":
        who = f"rank {culprit['rank']} on {culprit['node']}" if culprit["rank"] is not None else culprit["node"]
        lines.append(style.paint(f"  first culprit: {who}", "bold"))
        lines.extend(f"  │ {line}" for line in culprit["traceback"].splitlines())
    if result["verdict"] == "hung":
        lines.extend(_stacks(result, style, culprit))
    unmet = [e for e in result.get("expectations", ()) if not e["met"] and not (culprit and e["what"] == "exit")]
    if unmet and result["verdict"] == "failed":
        lines.extend(f"  {style.paint('✘', 'red')} {_sentence(e)}" for e in unmet[:_MOST_EXPECTATIONS])
        if len(unmet) > _MOST_EXPECTATIONS:
            lines.append(f"    and {len(unmet) - _MOST_EXPECTATIONS} more: lab show --json")
    if result.get("path"):
        lines.append(style.paint(f"  record: {result['path']}", "dim"))
    return "\n".join(lines)


def _stacks(result: Mapping[str, Any], style: Style, culprit: Mapping[str, Any] | None) -> list[str]:
    lines = []
    for rank in result["ranks"]:
        if rank["stack"] and (culprit is None or rank["rank"] != culprit["rank"]):
            lines.append(style.paint(f"  rank {rank['rank']} on {rank['node']}:", "bold"))
            inner = [line for line in rank["stack"].splitlines() if line.startswith("  File")]
            lines.extend(f"  │ {line.strip()}" for line in inner[:8])
    return lines


def _sentence(expectation: Mapping[str, Any]) -> str:
    where = f"rank {expectation['rank']}: " if expectation["rank"] is not None else ""
    expected, got = (clip(repr(expectation[key]), 200) for key in ("expected", "got"))
    return f"{where}{expectation['what']}: expected {expected}, got {got}"
