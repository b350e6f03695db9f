"""The words for wrong values."""

from __future__ import annotations

from lab.diagnosis.finding import Words, WordTable
from lab.diagnosis.wording import again, at, render_wrong
from lab.features.values.findings import OddValues, SameValues, WrongResult
from lab.words import capital, listing, name_ranks, plural


def _wrong_result(facts: WrongResult) -> Words:
    where, who = f"{facts.step}{at(facts.at)}", name_ranks(facts.wrong_ranks)
    why = ""
    if facts.handles and facts.waits_at:
        what = f"{capital(name_ranks(facts.ranks))} changed a tensor" if facts.ranks else "A tensor was changed"
        lines = listing(facts.waits_at)
        why = f"{what} between the call and the wait for its handle at {lines}, before it was done."
    elif facts.handles:
        why = "A tensor was changed before the call was done: nobody waited for its handle."
    elif facts.alike:
        why = f"All {facts.alike} tensors that it filled hold the same, as if they were one."
    return f"{where} did not give {who} what it should have: {render_wrong(facts.first)}", why, again(facts.again)


def _odd_values(facts: OddValues) -> Words:
    who, where = name_ranks(facts.ranks), f"{facts.step}{at(facts.at)}"
    if facts.how == "nan":
        return f"{who} brought NaN to {where}, the first NaN on record; who gets its result gets NaN"
    if facts.how == "far":
        return (
            f"{who} brought values up to {facts.value:.3g} to {where}, where the others brought at most "
            f"{facts.rest:.3g}, and all at most {facts.usual:.3g} to the {plural(facts.steps, 'step')} before it; who "
            "gets its result gets that"
        )
    return (
        f"{who} brought other values than the others to {where}, where all brought the same to each of "
        f"{plural(facts.steps, 'other step')}; who gets its result gets that"
    )


def _same_values(facts: SameValues) -> Words:
    what = f"each of {plural(facts.steps, facts.op)}" if facts.steps > 1 else facts.step
    why = "all of them have the same data, or what they bring has been reduced before"
    if facts.others_differ:
        why = "what they bring has been reduced before, or all of them have the same data"
    phase = " of gradients" if facts.gradients else ""
    return f"{name_ranks(facts.others)} brought the same values to {what}{phase}{at(facts.at)}: as if {why}"


WORDS: WordTable = {WrongResult: _wrong_result, OddValues: _odd_values, SameValues: _same_values}
