"""Format a result in words: the verdict first, then its explanation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from lab import words
from lab.errors import Interrupted, LabError, MachineLacks
from lab.feature import find_view
from lab.report.style import MANY, STATUSES, Style, group_by_kind, group_equal, mask_numbers, spans_text, table_text
from lab.words import NONE, clip_end, format_count, format_duration, format_value, join_words, name_nodes, name_ranks

if TYPE_CHECKING:
    from lab.diagnosis.explain import Explanation
    from lab.record.result import RankResult, Result
    from lab.spec.scenario import Scenario

_MOST_EXPECTATIONS = 10
_STACK_LINES = 8
_MOST_OUTPUTS = 3
_LONG_S = 2.0


def verdict_text(result: Result, style: Style, command_s: float = 0.0) -> str:
    """Format the verdict, the reason, the culprit's traceback, and the unmet expectations.

    Args:
        result: of the run.
        style: of the stream.
        command_s: seconds that the command took; named if it took much longer than the run.
    """
    run_s = result.duration_s or 0.0
    took = f" (the whole command: {format_duration(command_s)})" if command_s > 2 * run_s + _LONG_S else ""
    lines = [f"{style.verdict(result.verdict)}  {style.paint(result.scenario, 'bold')}  {result.reason}{took}"]
    culprit = result.culprit
    if culprit is not None and culprit.traceback and not result.passed:
        lines.append(style.paint(f"  {name_culprit(result)}", "bold"))
        lines.extend(f"  │ {line}" for line in culprit.traceback.splitlines())
    if result.verdict == "hung" or result.exit_code == Interrupted.exit_code:
        lines.extend(_stacks(result, style))
    lines += [f"  {describe(fault)}" for fault in result.faults if (describe := find_view("fault_of_result"))]
    unmet = unmet_sentences(result)
    lines += [f"  {style.paint('✘', 'red')} {sentence}" for sentence in unmet[:_MOST_EXPECTATIONS]]
    if len(unmet) > _MOST_EXPECTATIONS:
        lines.append(f"    and {len(unmet) - _MOST_EXPECTATIONS} more: lab show --json")
    lines += [f"  {sentence}" for sentence in written_snapshots(result)]
    advise = find_view("advice_of_result") if result.verdict in ("failed", "timeout") else None
    lines += [f"  hint: {advice}" for advice in (advise(result) if advise else ())]
    if result.path is not None:
        lines.append(style.paint(f"  record: {result.path}", "dim"))
    return "\n".join([*lines, *(style.paint(line, "dim") for line in _outputs(result))])


def all_failed_alike(result: Result) -> bool:
    """Return whether every rank raised the same error at the same line."""
    facts = result.findings[0].get("facts") if result.findings else None
    alike = facts.get("alike") if isinstance(facts, dict) else None  # a record can be damaged
    return isinstance(alike, (list, tuple)) and 0 < len(alike) == len(result.ranks) - 1


def name_culprit(result: Result) -> str:
    """Name the first culprit, and say whether every rank failed like it."""
    head = "every rank alike, first" if all_failed_alike(result) else "first culprit:"
    return f"{head} {result.culprit.who}" if result.culprit is not None else ""


def _outputs(result: Result) -> list[str]:
    lines = []
    if result.outputs:
        named = [f"{one.path} ({words.format_bytes(one.bytes)})" for one in result.outputs[:_MOST_OUTPUTS]]
        hidden = len(result.outputs) - len(named)
        lines.append(f"  files: {join_words([*named, f'{hidden} more' if hidden else ''])} in {result.outputs_folder}")
    if result.outputs_left_out:
        hidden = len(result.outputs_left_out) - 1
        lines.append(f"  not copied: {result.outputs_left_out[0]}{f' (and {hidden} more)' if hidden else ''}")
    return lines


def unmet_sentences(result: Result) -> list[str]:
    """Return the sentences about unmet expectations, if these cause the verdict.

    The culprit's own exit code is left out. Of a hung run, only a snapshot that differs is close to a reason.
    """
    covered = ("exit",) if result.culprit is not None else ()
    unmet = result.unmet if result.verdict == "failed" else [one for one in result.unmet if one.what == "snapshot"]
    return words.merge_ranks(one.sentence() for one in unmet if one.what not in covered)


def written_snapshots(result: Result) -> list[str]:
    """Return a sentence for each written snapshot: `ring.3x1.calls.txt: written: 24 calls of 3 ranks`."""
    wrote = [one for one in result.expectations if one.what == "snapshot" and one.met]
    return [one.sentence() for one in wrote if str(one.got).startswith("written")]


def _stacks(result: Result, style: Style) -> list[str]:
    from lab.diagnosis.stacks import clip_stack  # most runs have none

    lines = []
    culprit = result.culprit.rank if result.culprit is not None else None
    others = [rank for rank in result.ranks if rank.stack and rank.rank != culprit]
    groups = group_by_kind(others, lambda one: tuple(clip_stack(one.stack, _STACK_LINES)), most=1)
    for same in sorted(groups, key=len)[:MANY]:
        who = " on ".join(filter(None, (name_ranks(one.rank for one in same), name_nodes(one.node for one in same))))
        lines.append(style.paint(f"  {who}:", "bold"))
        lines.extend(f"  │ {line.strip()}" for line in clip_stack(same[0].stack, _STACK_LINES))
    if len(groups) > MANY:
        hidden = format_count(len(groups) - MANY, "other stack")
        lines.append(style.paint(f"  and {hidden}: lab explain {result.run}", "dim"))
    return lines


_LONGEST = 70
"""Characters of a note."""


def result_text(result: Result, style: Style) -> str:
    """Format the verdict, a row for each rank, the notes, and the earlier attempts."""
    parts = [verdict_text(result, style)]
    if result.ranks:
        parts.append(table_text(["rank", "node", "ended", "time", "error"], _rank_rows(result), style))
    if notes := note_rows(result.ranks, _LONGEST, f": lab show {result.run} --json"):
        rows = [[spans_text(ranks), name, value] for ranks, name, value in notes]
        parts.append(table_text(["rank", "note", "value"], rows, style))
    if result.attempts:
        rows = [
            [str(one.number), str(one.world_size), join_words(one.nodes), format_duration(one.duration_s), one.verdict,
             clip_end(one.reason, 100)]
            for one in result.attempts
        ]  # fmt: skip
        table = table_text(["attempt", "ranks", "nodes", "time", "verdict", "reason"], rows, style)
        hint = f"lab show {result.run} --attempt N shows {words.name_attempts(range(result.restarts))}"
        parts.append(f"{table}\n{style.paint(hint, 'dim')}")
    return "\n\n".join(parts)


def ended_alike(results: Iterable[RankResult]) -> list[list[RankResult]]:
    """Group ranks that ended in the same way, with errors that differ at most in numbers.

    If none has an error, few ranks stay separate.
    """
    ranks = list(results)
    most = 1 if any(one.error for one in ranks) else MANY
    return group_by_kind(ranks, lambda one: (one.ended, mask_numbers(one.error)), most)


def _rank_rows(result: Result) -> list[list[str]]:
    from lab.report.style import range_text

    rows = []
    for same in ended_alike(result.ranks):
        ranks, nodes = spans_text(one.rank for one in same), name_nodes(one.node for one in same)
        time = range_text((one.duration_s for one in same), format_duration)
        rows.append([ranks, nodes, same[0].ended or NONE, time, clip_end(same[0].error, 80)])
    return rows


def note_rows(results: Sequence[RankResult], longest: int, where: str = "") -> list[tuple[list[int], str, str]]:
    """Return ranks, name, and value of notes; for many ranks, equal notes once, and similar ones only in part.

    Args:
        results: results of all ranks.
        longest: most characters of a value.
        where: text after the number of omitted values, such as where to find them.
    """
    from lab.report.style import collapse_similar

    noted = [(one.rank, (name, format_value(value, longest))) for one in results for name, value in one.notes.items()]
    if len(results) <= MANY:
        return [([rank], *note) for rank, note in noted]
    shown = collapse_similar(group_equal(noted), lambda one: (one[0], mask_numbers(one[1])))
    rows = [(ranks, name, f"… {rest} other values{where}" if rest else value) for ranks, (name, value), rest in shown]
    names = [*dict.fromkeys(name for _, name, _ in rows)]
    return sorted(rows, key=lambda row: names.index(row[1]))


_WIDTH = 80
_MOST_STACKS = 4
_RANK = re.compile(r"\b([Rr]ank (\d+))\b(?!-)")
_SOURCE = re.compile(r"\b[\w./-]+\.py:\d+\b")


def explanation_text(explanation: Explanation, style: Style, broken: Sequence[str] = ()) -> str:
    """Format the explanation, wrapped at the terminal's width or 80 columns, and the injected faults."""
    import textwrap  # `lab run` does not need it

    width = max(40, min(_WIDTH, style.width or _WIDTH))

    def wrap(text: str, first: str, indent: str = "    ") -> list[str]:
        return textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )

    lines = [f"{style.verdict(explanation.verdict)}  {style.paint(explanation.scenario, 'bold')}"]
    lines += wrap(explanation.sentence, "  ", "  ")
    numbered = [(f"{number:>2}. ", sentence) for number, sentence in enumerate(explanation.new_sentences, start=1)]
    for first, sentence in (*numbered, *(("    ", sentence) for sentence in broken)):
        lines += ["", *(_painted(line, style) for line in wrap(sentence, first))]
    for ranks, stack in group_equal(explanation.stacks.items())[:_MOST_STACKS]:
        lines += ["", style.rank(ranks[0], name_ranks(ranks)), *_stack(stack, width)]
    if explanation.problems:
        lines += ["", style.paint("missing facts", "bold")]
        for problem in explanation.problems:
            lines += wrap(problem, "  - ")
    return "\n".join([*lines, "", style.paint(f"run {explanation.run}", "dim")])


def _painted(line: str, style: Style) -> str:
    line = _RANK.sub(lambda match: style.rank(int(match[2]), match[1]), line)
    return _SOURCE.sub(lambda match: style.paint(match[0], "bold"), line)


def _stack(stack: str, width: int) -> list[str]:
    """Return the end of a traceback, or the innermost frames of a stack, without the carets under the code."""
    from lab.diagnosis.stacks import clip_stack

    lines = [line for line in stack.strip("\n").splitlines() if line.strip(" ^~")]
    return [clip_end(f"  │ {line}", width) for line in clip_stack("\n".join(lines), _STACK_LINES)]


_LONGEST_REASON = 140


def progress_line(number: int, total: int, scenario: Scenario, outcome: Result | LabError, style: Style) -> str:
    """Format one run that ended: `[ 3/61] ✔ passed  scatter  3 ranks  72 ms`."""
    verdict, reason = _status(outcome), outcome.message if isinstance(outcome, LabError) else outcome.reason
    if not isinstance(outcome, LabError) and outcome.passed:
        reason = f"{format_count(len(outcome.ranks), 'rank')}  {format_duration(outcome.duration_s)}"
    return ended_line(number, total, verdict, scenario.name, reason, style)


def ended_line(number: int, total: int, status: str, name: str, text: str, style: Style) -> str:
    """Format one of many items that ended, with its size and time, or with the reason if it did not pass."""
    counter = f"[{number:>{len(str(total))}}/{total}]"
    reason = clip_end(next(iter(text.splitlines()), ""), _LONGEST_REASON)
    return f"{counter} {style.verdict(status)}  {style.paint(name, 'bold')}  {reason}".rstrip()


def summary_text(outcomes: Sequence[Result | LabError], elapsed_s: float, style: Style) -> str:
    """Count the runs of each verdict: `58 passed, 1 failed, 1 hung in 14.2 s`."""
    return counts_text(Counter(map(_status, outcomes)), elapsed_s, style)


def _status(outcome: Result | LabError) -> str:
    if isinstance(outcome, LabError):
        return "skipped" if isinstance(outcome, MachineLacks) else "error"
    return outcome.verdict


def counts_text(counts: Mapping[str, int], elapsed_s: float, style: Style) -> str:
    """Format the number of runs of each status, and the time they took."""
    parts = [style.paint(f"{counts[name]} {name}", STATUSES[name].terminal) for name in STATUSES if counts.get(name)]
    return f"{', '.join(parts) or 'nothing ran'} in {format_duration(elapsed_s)}"
