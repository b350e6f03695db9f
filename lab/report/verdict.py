"""A result in words: the verdict first, then what explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lab.feature import view
from lab.report.alike import MANY, alike
from lab.report.style import Style
from lab.words import format_bytes, format_duration, listing, merge_ranks, name_nodes, name_ranks, plural

if TYPE_CHECKING:
    from lab.record.result import Result

_MOST_EXPECTATIONS = 10
_STACK_LINES = 8
_MOST_OUTPUTS = 3


def verdict_text(result: Result, style: Style) -> str:
    """The verdict, the reason, the culprit's last words and the expectations that were not met."""
    lines = [f"{style.verdict(result.verdict)}  {style.paint(result.scenario, 'bold')}  {result.reason}"]
    culprit = result.culprit
    if culprit is not None and culprit.traceback and not result.passed:
        lines.append(style.paint(f"  first culprit: {culprit.who}", "bold"))
        lines.extend(f"  │ {line}" for line in culprit.traceback.splitlines())
    if result.verdict == "hung":
        lines.extend(_stacks(result, style))
    lines += [f"  {_of_the_network(one) or f'broken on purpose: {fault_told(one)}'}" for one in result.faults]
    unmet = unmet_sentences(result)
    lines += [f"  {style.paint('✘', 'red')} {sentence}" for sentence in unmet[:_MOST_EXPECTATIONS]]
    if len(unmet) > _MOST_EXPECTATIONS:
        lines.append(f"    and {len(unmet) - _MOST_EXPECTATIONS} more: lab show --json")
    lines += [f"  {sentence}" for sentence in written_snapshots(result)]
    if result.path is not None:
        lines.append(style.paint(f"  record: {result.path}", "dim"))
    lines += [style.paint(line, "dim") for line in _outputs(result)]
    return "\n".join(lines)


def _outputs(result: Result) -> list[str]:
    lines = []
    if result.outputs:
        named = [f"{one.path} ({format_bytes(one.bytes)})" for one in result.outputs[:_MOST_OUTPUTS]]
        more = len(result.outputs) - len(named)
        lines.append(f"  files: {listing([*named, f'{more} more' if more else ''])} in {result.outputs_folder}")
    if result.outputs_left_out:
        more = len(result.outputs_left_out) - 1
        lines.append(f"  not brought back: {result.outputs_left_out[0]}{f' (and {more} more)' if more else ''}")
    return lines


def fault_told(fault: Mapping[str, Any]) -> str:
    """What was broken on purpose, and when: `stop node2 after 1.20 s, when rank 0 noted step = 3`."""
    at, why, failed = fault.get("at_s"), fault.get("why"), fault.get("failed")
    when = f"after {format_duration(at)}" if isinstance(at, float) else "before the run"
    told = f"{fault.get('fault') or 'a fault'} {when}{f', when {why}' if why else ''}"
    if failed:
        return f"{told}; it could not be done: {failed}"
    measured = _measured(fault.get("found"))
    told = f"{told}; {measured}" if measured else told
    noticed, by = fault.get("detected_s"), fault.get("by")
    return f"{told}; noticed after {format_duration(noticed)} by {by}" if isinstance(noticed, float) and by else told


def _of_the_network(fault: Mapping[str, Any]) -> str:
    """The network that the whole run had: `network wan-40ms; asked 20 ms ...`; empty where it is something else."""
    told, measured = str(fault.get("fault")), _measured(fault.get("found"))
    if not told.startswith("network ") or fault.get("why") or fault.get("failed"):
        return ""
    return f"{told}; {measured}" if measured else told


def _measured(found: Any) -> str:
    if not isinstance(found, Mapping) or not found:
        return ""
    words = view("measured")
    return words(found) if words else ""


def unmet_sentences(result: Result) -> list[str]:
    """What did not come out, where that is the verdict; a culprit says itself how it ended.

    Of a run that hangs, what it called otherwise than its snapshot has it is the nearest to a reason.
    """
    told = ("exit",) if result.culprit is not None else ()
    unmet = result.unmet if result.verdict == "failed" else [one for one in result.unmet if one.what == "snapshot"]
    return merge_ranks(one.sentence() for one in unmet if one.what not in told)


def written_snapshots(result: Result) -> list[str]:
    """The snapshots that it wrote: `ring.3x1.calls.txt: written: 24 calls of 3 ranks`."""
    wrote = [one for one in result.expectations if one.what == "snapshot" and one.met]
    return [one.sentence() for one in wrote if str(one.got).startswith("written")]


def _stacks(result: Result, style: Style) -> list[str]:
    from lab.diagnosis.stacks import clip_stack  # most runs have none

    lines = []
    others = [
        rank for rank in result.ranks if rank.stack and (result.culprit is None or rank.rank != result.culprit.rank)
    ]
    nodes = {rank.rank: rank.node for rank in others}
    shown = ((rank.rank, tuple(clip_stack(rank.stack, _STACK_LINES))) for rank in others)
    groups = alike(shown) if len(others) > MANY else [([rank], stack) for rank, stack in shown]
    for ranks, stack in sorted(groups, key=lambda group: len(group[0]))[:MANY]:
        where = name_nodes(nodes[rank] for rank in ranks)
        lines.append(style.paint(f"  {name_ranks(ranks)} on {where}:", "bold"))
        lines.extend(f"  │ {line.strip()}" for line in stack)
    if len(groups) > MANY:
        lines.append(style.paint(f"  and {plural(len(groups) - MANY, 'other stack')}: lab explain {result.run}", "dim"))
    return lines
