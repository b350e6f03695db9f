"""What a run may end with while faults are done to it, and what is a bug that they brought to light. Pure.

A rank that dies because its node was killed is no bug. These are:

- the run hangs: who lost a peer has to notice;
- nobody failed, and yet something came out otherwise than expected;
- a rank ended as if all were well, and had noted something wrong;
- it fails although its faults only took time;
- it fails, as it may, and what it leaves in the shared folder keeps the next run, without faults, from passing.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.features.faults.kind import Harm
from lab.record.result import Result

_NOTE = "note "


def broken_by(result: Result, harms: Sequence[Harm]) -> str:
    """What a run under faults broke, in a sentence; empty where it ended as such a run may.

    Args:
        result: of that run.
        harms: what the faults that were done to it can do.
    """
    if result.verdict == "hung":
        return f"it hung: {result.reason}"
    if result.verdict == "error":
        return f"it has no verdict: {result.reason}"
    if "spoils" in harms:
        return ""
    unmet = result.unmet_by_script
    if unmet and not anybody_failed(result):
        return f"nobody failed, and yet {unmet[0].sentence()}"
    noted = {(rank.rank, _NOTE + name) for rank in result.ranks if rank.exit_code == 0 for name in rank.notes}
    wrong = [one for one in unmet if (one.rank, one.what) in noted]
    if wrong:
        return f"a rank ended as if all were well: {wrong[0].sentence()}"
    if anybody_failed(result) and "loses" not in harms:
        only = "its faults only took time" if harms else "no fault came"
        return f"it failed, though {only}: {result.reason}"
    return ""


def broken_after(result: Result) -> str:
    """What the run after it broke, to which no fault was done, on what the one before had left; empty: nothing."""
    return "" if result.passed else f"the next run, without faults, {result.verdict}: {result.reason}"


def anybody_failed(result: Result) -> bool:
    """Whether a rank or a node failed, whatever was expected of what came out."""
    return result.culprit is not None or any(not one.met for one in result.expectations if one.what == "exit")
