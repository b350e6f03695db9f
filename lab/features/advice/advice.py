"""Advise on common errors of scripts: missing arguments, ranks, files of other nodes, results without gradients.

Also on the time limit of a run that was still at work.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lab.diagnosis.errors import missing_file, missing_module
from lab.diagnosis.evidence import Explained
from lab.diagnosis.facts import RunFacts
from lab.diagnosis.finding import Finding, Kind, Words
from lab.errors import RecordError
from lab.node.contents import read_entries
from lab.plan.plan import insert_placeholders
from lab.record import events
from lab.record.read import Record
from lab.record.result import RankResult, Result
from lab.run.snapshot import Snapshot
from lab.trace.read import read_trace
from lab.trace.steps import match_steps
from lab.words import name_ranks

_REQUIRED = re.compile(r"error: the following arguments are required: (.*)")
"""What argparse prints before it exits with code 2."""
_NO_RANK = re.compile(r"`rank` must be an integer|EADDRINUSE|address already in use", re.IGNORECASE)
"""What init_process_group raises if a rank has no number, or several of them have number 0."""

_LONGER_LIMIT = "a longer time limit lets the run continue: --timeout, or `timeout:` in the scenario"


class AdviceKind(Kind):
    """The kinds of findings of this feature."""

    ADVICE = "advice", 1


class Advice(Finding):
    """What to change in a script or a command."""

    kind: Kind = AdviceKind.ADVICE
    advice: str

    def render(self) -> Words:
        """Return the advice."""
        return self.advice


def explain_advice(run: Explained) -> list[Finding]:
    """Return advice on the first failure of a run."""
    return [] if run.ended_well else [Advice(advice=one) for one in find_advice(run.evidence.record.result())]


def find_advice(result: Result) -> list[str]:
    """Return advice on the first failure of a run, or on its time limit."""
    if result.verdict == "timeout":
        return [_LONGER_LIMIT] if result.engine and result.culprit is None else []
    for one in result.expectations:
        is_list = isinstance(one.expected, (list, tuple)) and len(one.expected) == len(result.ranks)
        if not one.met and one.what.startswith("note ") and is_list and isinstance(one.got, (str, int, float)):
            return [f"one value per rank is a mapping: `{one.what[5:]}: {{0: ..., 1: ...}}`"]
    culprits = [one for one in result.ranks if result.culprit is not None and one.rank == result.culprit.rank]
    first = next(iter(culprits), RankResult(rank=-1))
    with suppress(OSError, RecordError):
        if first.exit_code == 2 and (required := _REQUIRED.search(first.log)):
            known = [new for one in required[1].split(", ") if (new := insert_placeholders(one)) != one]
            return [f"`lab run ... -- {' '.join(known)}` passes each rank its own"] if known else []
        if _NO_RANK.search(first.error) and "init_process_group" in first.traceback:
            return ["if the script has an option for it, `lab run ... -- --rank '{rank}'` gives each rank its number"]
        if first.error.startswith("AssertionError") and result.path:
            steps = enumerate(match_steps(read_trace(Record(path=result.path))), start=1)
            entered = [(n, one.calls[first.rank], one.title) for n, one in steps if first.rank in one.calls]
            done = [one for one in entered if one[1].state == "completed" and one[1].bytes]
            how = "`lab show {} --step {}` draws what each rank gave and got in {}, the last before the check"
            return [how.format(result.run, n, f"{title} at {call.source}") for n, call, title in done[-1:]]
        if "have NCCL built in" in first.error:
            return ["`lab run ... --backend gloo` uses gloo, whatever the script names"]
        if "Duplicate GPU detected" in first.traceback:
            return ["ranks can share GPUs: `lab run ... --gpus 1 --split-gpus`, for 1 GPU of each node"]
        if missing := re.search(r"FileNotFoundError: .*: '(.*)'", first.error):
            name = missing[1].rpartition("/")[2]
            outputs = (one for one in result.outputs if one.path.rpartition("/")[2] == name)
            writers = sorted({rank for one in outputs for rank in one.ranks} - {first.rank})
            how = "nodes share only files below $LAB_SHARED, and dist.barrier() makes readers wait for the writer"
            return [f"{name_ranks(writers)} wrote {name}; {how}"] if writers else []
        if "does not require grad and" in first.error and result.path:
            last = [rank.calls[-1].op for rank in read_trace(Record(path=result.path)).ranks.values() if rank.calls]
            own = "put the rank's own tensor back into them, or use torch.distributed.nn.functional.all_gather"
            return [f"the outputs of {op} have no gradient: {own}" for op in last[:1] if op.startswith("all_gather")]
    return []


# -- modules and files that were not shipped

_LEVELS = 4
"""Number of folders above the script's folder in which to search for a user's own modules."""


def find_unshipped(facts: RunFacts, folder: Path, snapshot: Snapshot | None) -> Iterator[events.NotShipped]:
    """Yield a fact for each module or file that a rank did not find and this machine has.

    Args:
        facts: of the run.
        folder: the shipped folder.
        snapshot: what was shipped of it; None: nothing.
    """
    for module in sorted({name for rank in facts.ranks if (name := missing_module(rank.error))}):
        if (path := _find_module(module, folder)) is not None:
            yield events.NotShipped(time.time(), module, str(path), str(folder))
    files = sorted({name for rank in facts.ranks if (name := missing_file(rank.error))})
    shipped = read_entries(snapshot.all_entries()) if files and snapshot else {}
    for name in files:
        below = os.path.normpath(name.rpartition(_WORK)[2])  # scripts make paths from __file__, too
        if not below.startswith("..") and below not in shipped and os.path.lexists(folder / below):
            yield events.NotShipped(time.time(), name, str(folder / below), str(folder))


_WORK = "/run/work/"
"""End of the path of a script's folder in a node."""


def _find_module(module: str, folder: Path) -> Path | None:
    if (folder / module).is_dir():  # this folder was left out of the shipment
        return folder / module
    above = [parent for parent in folder.parents[:_LEVELS] if parent != Path(parent.anchor)]
    on_path = [Path(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]
    folders = (folder, *above, Path.cwd(), *on_path)
    for below in (*folders, *(one / "src" for one in folders)):
        if (below / f"{module}.py").is_file():
            return below / f"{module}.py"
        if (below / module / "__init__.py").is_file():
            return below / module
    return None
