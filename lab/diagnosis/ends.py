"""What a rank did at the end of its run, in words that follow its name, with the traceback or stack that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from lab.diagnosis.errors import telling_text
from lab.diagnosis.evidence import Evidence
from lab.diagnosis.peers import is_loss
from lab.diagnosis.rank_facts import RankFacts
from lab.diagnosis.stacks import CodePlace, clip_stack, has_returned, is_leaving, shorten_paths, shorten_stack
from lab.diagnosis.threads import after_a_thread
from lab.diagnosis.waits import Wait, describe_wait
from lab.record.result import Culprit
from lab.trace.model import Call
from lab.words import clip, format_bytes, format_limit, listing, name_ranks, plural, was

_LINES = 12
"""Lines of a traceback or stack that a verdict shows."""
_LONGEST_REFUSAL = 120
_WHOLE_ERROR = 4000
"""Characters of an exception that a worker tells at most; the traceback has all of it."""


def full_name(rank: RankFacts) -> str:
    """`rank 1 (node0)`."""
    return f"rank {rank.rank} ({rank.node})" if rank.node else f"rank {rank.rank}"


def together(ranks: Iterable[int], words: Callable[[int], str]) -> list[str]:
    """A clause for all ranks of which the same is said: `ranks 0 and 1 were at train.py:4`."""
    same: dict[str, list[int]] = {}
    for rank in ranks:
        same.setdefault(words(rank), []).append(rank)
    return [
        f"{name_ranks(ours)} {was(ours) + what.removeprefix('was') if what.startswith('was ') else what}"
        for what, ours in same.items()
    ]


def at_lines(calls: Iterable[Call]) -> str:
    """` at train.py:4 and train.py:9`; nothing where no line is known."""
    lines = listing(call.source for call in calls)
    return f" at {lines}" if lines else ""


def refusal(title: str, calls: Sequence[Call]) -> str:
    """That calls failed: `reduce #2 at train.py:4 was refused to rank 1 (why)`; empty unless all of them did."""
    errors = [call.error for call in calls if call.error]
    if not errors or len(errors) < len(calls):
        return ""
    happened = "failed on" if any(map(is_loss, errors)) else "was refused to"
    ranks = name_ranks(call.rank for call in calls)
    return f"{title}{at_lines(calls)} {happened} {ranks} ({clip(errors[0], _LONGEST_REFUSAL)})"


def where_it_was(evidence: Evidence, rank: RankFacts) -> str:
    """`at train.py:37 (time.sleep(99))`, `in barrier at train.py:41`, `done, but did not end`."""
    place = evidence.stood(rank)
    if has_returned(rank.stack):
        return "done with the call"
    if is_leaving(rank.stack):
        thread = evidence.thread(rank)
        held = [f"it was {place.sentence()}"] if place is not None else []
        held += [f"a thread of it was {thread.sentence()}"] if thread is not None else []
        return ": ".join(["done, but did not end", *held[:1]])
    return (place.sentence() if place is not None else "in code without a Python stack") + after_a_thread(rank)


def how_it_failed(evidence: Evidence, rank: RankFacts, *, brief: bool = False) -> str:
    """`raised ValueError: ... at train.py:30`; if brief, cut short and without addresses of PyTorch's sources."""
    if rank.out_of_memory:
        return _out_of_memory(evidence, rank)
    if rank.signal and rank.raised is None:  # else its script was over: whatever killed it then is no cause
        place = evidence.stood(rank)
        return f"was killed by {rank.signal}{f' {place.sentence()}' if place is not None else ''}"
    place = evidence.raised(rank)
    where = f" at {place.at}" if place is not None else ""
    error = _whole_error(rank)
    if error and not error.startswith("SystemExit"):
        return f"raised {telling_text(error, lambda: evidence.parameter_names(rank.rank), brief=brief)}{where}"
    expected = f", expected {rank.expected_code}," if rank.expected_code else ""
    said = error.partition("\n")[0].partition(": ")[2].strip()
    if rank.code is None and not said:
        return f"ended{where}, and nobody saw how"
    last_words = f": {said}" if said and not said.lstrip("-").isdigit() else ""
    code = said if rank.code is None else rank.code
    return f"exited with code {code}{expected}{where}{last_words}"


def _whole_error(rank: RankFacts) -> str:
    error = rank.error.strip()
    cut = len(rank.error) >= _WHOLE_ERROR
    return "\n".join([error, *rank.traceback.strip().splitlines()[-1:]]) if cut else error


def _out_of_memory(evidence: Evidence, rank: RankFacts) -> str:
    """How much it held where that is known, what was allowed, and where it was last seen."""
    limit, place = evidence.facts.memory_bytes, evidence.stood(rank)
    facts = [f"it held {format_bytes(rank.memory_bytes)}"] if rank.memory_bytes else []
    facts += [f"its node's limit is {format_limit(limit)}"] if limit else []
    where = f" {place.sentence()}" if place is not None else _last_seen(evidence, rank.rank)
    return f"was killed for lack of memory{where}{': ' if facts else ''}{', '.join(facts)}"


def _last_seen(evidence: Evidence, number: int) -> str:
    """`, last seen in forward at train.py:30`: the latest call or mark of a rank that left no stack."""
    of_rank = evidence.trace.ranks.get(number) if evidence.at_hand else None
    seen = [(call.begin, call.op, call.end, call.source) for call in of_rank.calls] if of_rank else []
    seen += [(mark.begin, mark.name, mark.end, mark.source) for mark in of_rank.marks] if of_rank else []
    if not seen:
        return ""
    _, name, end, line = max(seen, key=lambda one: one[0])
    return f", last seen {'in' if end is None else 'after'} {name}{f' at {line}' if line else ''}"


def what_it_did(evidence: Evidence, number: int, waits: Mapping[int, Wait]) -> str:
    """What any rank did: it waited, failed, had ended, or was somewhere else."""
    rank = evidence.ranks.get(number)
    if number in waits:
        return f"waited in {describe_wait(waits[number])}"
    if rank is None:
        return "is not on record"
    if rank.node_lost:
        return f"went away with its node, {rank.node}{_after(evidence, number)}"
    if rank.failed:
        return f"{how_it_failed(evidence, rank, brief=True)}{_after(evidence, number)}"
    if rank.left:
        return f"had ended with code {rank.code}{_after(evidence, number)}"
    if rank.stack:
        return f"was {where_it_was(evidence, rank)}"
    last = evidence.calls(number)[-1:]
    if last:
        return f"was somewhere after {last[0].op}{at_lines(last)}"
    return "was in no call on record" if evidence.dumped else "had called nothing yet"


def last_call(evidence: Evidence, number: int) -> str:
    """Where in its calls a rank ended: `after 2 calls, the last of them all_reduce #2 at a.py:9`; empty: unknown."""
    calls = evidence.calls(number)
    if not calls:
        return "before its first call" if _has_called_nothing(evidence, number) else ""
    last = calls[-1]
    step = evidence.step(last)
    title = step.title if step is not None and (step.op == last.op or step.message) else f"{last.op} #{last.seq}"
    where = f"{title} at {last.source}" if last.source else title
    if last.state != "completed":
        return f"in {where}"
    return f"after {plural(len(calls), 'call')}, the last of them {where}"


def _has_called_nothing(evidence: Evidence, number: int) -> bool:
    """Whether a trace shows no call of a rank, and would: what a node had not sent is lost with it."""
    rank, trace = evidence.ranks.get(number), evidence.trace.ranks.get(number)
    return trace is not None and trace.recorded and not (trace.calls or (rank is not None and rank.node_lost))


def _after(evidence: Evidence, number: int) -> str:
    calls = evidence.calls(number)
    if not calls:
        return ", before its first call" if _has_called_nothing(evidence, number) else ""
    step = evidence.step(calls[-1])
    return f" after {step.title if step is not None and not step.message else calls[-1].op} at {calls[-1].source}"


def blame(rank: RankFacts, error: str, traceback: str = "", cause: str = "") -> Culprit:
    """A rank as the culprit, with the end of its traceback or the innermost of its stack, or else somebody else's."""
    raised = "" if rank.stopped else _tail(rank.traceback)
    shown = raised or "\n".join(clip_stack(shorten_stack(rank.stack), _LINES)) or _tail(traceback)
    return Culprit(rank=rank.rank, node=rank.node, error=error, traceback=shown, cause=cause)


def went_alone(place: CodePlace | None, gone: list[int]) -> str:
    """What a rank did that called a collective after most others had ended with code 0."""
    where = f" {place.sentence()}" if place else ""
    return f"went on alone{where} when {name_ranks(gone)} had ended with code 0"


def _tail(traceback: str) -> str:
    return "\n".join(clip_stack(shorten_paths(traceback), _LINES))
