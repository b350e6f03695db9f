"""What Slurm's commands print, as data. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lab.engine import ownership as label
from lab.errors import EngineUnavailable
from lab.plan.limits import Machine

HOME = f"{label.NAMESPACE}.home"
"""The label that names the folder of its maker's clusters: two of them may have clusters of the same name."""
JOBS = "%i|%T|%N|%r|%k"
"""The format in which squeue is asked for jobs; a comment may hold anything, so it is the last."""
_ENDING = "COMPLETING"
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z/:_]*)=")
_NOTHING = ("", "None", "(null)", "Unknown", "N/A", "NonZeroExitCode")
_FAILED = "NODE_FAIL"


class Job(NamedTuple):
    """A job of this user that the lab made."""

    number: str
    state: str
    """`RUNNING`, `PENDING`, ..."""
    hosts: str
    """As Slurm shortens them: `n[0-2]`."""
    reason: str
    labels: Mapping[str, str]

    @property
    def cluster(self) -> str:
        """The name of the cluster that it is."""
        return self.labels[label.CLUSTER]

    @property
    def ending(self) -> bool:
        """Whether it has been ended, and Slurm only waits for its processes."""
        return self.state == _ENDING


class Host(NamedTuple):
    """A machine of Slurm's."""

    name: str
    address: str
    """An address, or a name that has one."""
    state: str
    reason: str
    cpus: int
    memory_bytes: int


def read_jobs(text: str) -> Iterator[Job]:
    """Those in squeue's answer that carry the lab's labels."""
    for line in text.splitlines():
        number, state, hosts, reason, comment = (line.split("|", 4) + [""] * 4)[:5]
        try:
            labels = json.loads(comment)
        except ValueError:
            continue
        if isinstance(labels, dict) and label.CLUSTER in labels:
            yield Job(number, state, hosts, reason, {name: str(said) for name, said in labels.items()})


def pairs(line: str) -> dict[str, str]:
    """The `Name=value` of a line of scontrol's; values may hold blanks."""
    found = list(_PAIR.finditer(line))
    ends = [*(one.start() for one in found[1:]), len(line)]
    return {one[1]: line[one.end() : end].strip() for one, end in zip(found, ends, strict=False)}


def read_hosts(text: str) -> list[Host]:
    """The machines in the answer of `scontrol --oneliner show node`."""
    found = []
    for line in text.splitlines():
        said = pairs(line)
        if "NodeName" in said:
            found.append(
                Host(
                    name=said["NodeName"],
                    address=said.get("NodeAddr") or said["NodeName"],
                    state=said.get("State", ""),
                    reason=_meant(said.get("Reason", "")),
                    cpus=int(said.get("CPUTot") or 0),
                    memory_bytes=int(said.get("RealMemory") or 0) << 20,
                )
            )
    return found


class Fate(NamedTuple):
    """What became of a job."""

    state: str
    """Slurm's word; empty where it does not know the job any more."""
    reason: str = ""
    preempted: bool = False
    """Whether Slurm says when it was preempted."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state not in ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", _ENDING) or self.preempted

    @property
    def suspended(self) -> bool:
        """Whether all its processes stand still, because Slurm lets others go first."""
        return self.state == "SUSPENDED"

    @property
    def told(self) -> str:
        """In Slurm's own words, as the end of a sentence that begins with the name of a node."""
        if not self.state:
            return "was ended by Slurm, which does not know its job any more"
        state = "PREEMPTED" if self.preempted else self.state
        return f"was ended by Slurm: {state}{f' ({self.reason})' if self.reason else ''}"

    @property
    def host_failed(self) -> bool:
        """Whether the job was ended because a machine of it failed."""
        return self.state == _FAILED


def read_fate(text: str) -> Fate:
    """The answer of `scontrol --oneliner show job`."""
    said = pairs(text.partition("\n")[0])
    reason, when = _meant(said.get("Reason", "")), _meant(said.get("PreemptTime", ""))
    return Fate(state=said.get("JobState", ""), reason=reason, preempted=bool(when))


def read_accounted(text: str) -> Fate:
    """The answer of `sacct --parsable2 --noheader --format State`: `CANCELLED by 1000`."""
    state, _, more = text.partition("\n")[0].strip().partition(" ")
    return Fate(state=state, reason=more)


def least_machine(text: str) -> Machine:
    """The least machine of the default partition in the answer of `sinfo --format=%P|%c|%m`, or of all.

    Raises:
        EngineUnavailable: it names none.
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 2]
    rows = [row for row in rows if row[0].endswith("*")] or rows
    if not rows:
        raise EngineUnavailable("Slurm has no partition for you", "ask whoever runs the cluster")
    cores = min(_number(cpus) for _, cpus, _ in rows)
    return Machine(cores=cores, memory_bytes=min(_number(memory) for *_, memory in rows) << 20)


def _number(word: str) -> int:
    """`16`, or `16+` where some have more."""
    return int(word.rstrip("+"))


def is_well(host: Host) -> bool:
    """Whether Slurm does not say that a machine is out of order."""
    words = re.split(r"[+*$~#!%@^-]", host.state.upper())
    return not {"DOWN", "FAIL", "FAILING", "ERROR", "NOT_RESPONDING", "NO_RESPOND"} & {*words} and "*" not in host.state


def is_idle(state: str) -> bool:
    """Whether a machine waits for work and may be given some."""
    return state.upper() == "IDLE"


def _meant(word: str) -> str:
    """Slurm's reason; empty where it gives none."""
    return "" if word in _NOTHING else word


def labels_json(labels: Mapping[str, Any]) -> str:
    """Labels as the comment of a job."""
    return json.dumps(labels, separators=(",", ":"), sort_keys=True)
