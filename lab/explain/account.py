"""The short account of a run: how many calls, how many bytes, how long, and what stood out."""

from __future__ import annotations

from lab.trace.steps import Step
from lab.verdict.ends import at_lines
from lab.verdict.evidence import Evidence
from lab.verdict.finding import Finding
from lab.words import capital, format_bytes, format_duration, listing, name_ranks, plural

_WORTH_TELLING_S = 0.002


def give_account(evidence: Evidence) -> list[Finding]:
    """What the ranks of a run called altogether, and the step that took longest or carried most."""
    steps = evidence.steps
    if not steps:
        if not evidence.traced:
            return []
        return [Finding(kind="account", sentence="No rank called a collective or sent a message.")]
    messages = sum(step.message for step in steps)
    counts = [plural(len(steps) - messages, "collective")] if messages < len(steps) else []
    counts += [plural(messages, "message")] if messages else []
    calls = [call for step in steps for call in step.calls.values()]
    ends = [call.end for call in calls if call.end is not None]
    took = max(ends) - min(step.begin for step in steps) if ends else 0.0
    brought = sum(call.bytes_in for call in calls)
    ranks = sorted({call.rank for call in calls})
    sentence = (
        f"{capital(name_ranks(ranks))} entered {listing(counts)}{f' in {format_duration(took)}' if ends else ''} and "
        f"brought {format_bytes(brought)} to them. {_standing_out(steps)}"
    )
    return [Finding(kind="account", sentence=sentence.strip(), others=tuple(ranks), seconds=round(took, 6))]


def _standing_out(steps: list[Step]) -> str:
    """The step that took longest, or where none took long, the one that carried most."""
    ended = [step for step in steps if step.end is not None]
    longest = max(ended, key=lambda step: (step.end or 0.0) - step.begin, default=None)
    if longest is None:
        return ""
    took = (longest.end or 0.0) - longest.begin
    if took >= _WORTH_TELLING_S and len(ended) > 1:
        pacer = longest.pacer
        spent = pacer.begin - longest.begin if pacer is not None else 0.0
        late = f", {format_duration(spent)} of it until rank {pacer.rank} came" if pacer and spent > took / 2 else ""
        return f"The longest was {longest.title}{at_lines(longest.calls.values())}: {format_duration(took)}{late}."
    largest = max(ended, key=lambda step: max(call.bytes for call in step.calls.values()))
    size = max(call.bytes for call in largest.calls.values())
    return (
        f"The largest was {largest.title}{at_lines(largest.calls.values())}: {format_bytes(size)} a rank."
        if size
        else ""
    )
