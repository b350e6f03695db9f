"""The words for links."""

from __future__ import annotations

from lab.diagnosis.finding import Words, WordTable
from lab.diagnosis.wording import MOST_LINKS, describe_pairs, ran_there
from lab.features.links.findings import Flap, SlowLink
from lab.words import format_bytes, format_duration, listing, plural


def _flap(facts: Flap) -> Words:
    where = "; ".join(describe_pairs(facts.links[:MOST_LINKS]))
    if facts.nodes:
        rest = sorted({node for pair in facts.links for node in pair} - {*facts.nodes})
        where = f"{listing(facts.nodes)} and each of {listing(rest)}"
    count, least = len(facts.bursts_s), format_duration(min(facts.bursts_s))
    times = f"{count} times, each time for" if count > 1 else "for"
    step = f"; {facts.step} took {format_duration(facts.step_s)} meanwhile" if facts.step_s is not None else ""
    there = ran_there(facts.ranks)
    return f"nothing was acknowledged between {where} {times} at least {least}, and then it came through{step}{there}"


def _slow_link(facts: SlowLink) -> Words:
    between = f"between {listing(describe_pairs(facts.links[:MOST_LINKS]))}"
    if facts.nodes:
        between = f"between {listing(facts.nodes)} and the others"
    if facts.measure == "round_trip_s":
        worst, rest = format_duration(facts.worst), format_duration(facts.rest)
        what = f"round trips {between} took up to {worst}, between others at most {rest}"
    elif facts.measure == "lost_share":
        again = f"{plural(facts.segments, 'segment')} had to be sent again {between}"
        what = f"{again}, up to {facts.worst:.1%} of all, between others {facts.rest:.2%}"
    else:
        worst, rest = format_bytes(round(facts.worst)), format_bytes(round(facts.rest))
        full = "though there was more to send, and it was read at once"
        what = f"data went {between} at {worst}/s, {full}; between others at {rest}/s and more"
    return f"{what}{ran_there(facts.ranks)}"


WORDS: WordTable = {Flap: _flap, SlowLink: _slow_link}
