"""Slurm's own commands: how they are called, what they print, and waiting for an allocation."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from lab.engine import ownership as label
from lab.engine.protocol import Announce
from lab.errors import ClusterError, EngineAbsent, EngineUnavailable
from lab.node import processes
from lab.plan.limits import Machine
from lab.polling import poll_until
from lab.words import format_duration

COMMANDS = ("salloc", "srun", "squeue", "scontrol", "scancel", "sinfo")
_DEADLINE_S = 20.0
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
"""Variables that say which Slurm is meant; the others are of an allocation that whoever calls may be in."""
_UNKNOWN_JOB = "invalid job id"


def refuse_absence() -> None:
    """Refuse to go on where Slurm's commands are not.

    Raises:
        EngineAbsent: one is not on PATH.
    """
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        raise EngineAbsent(
            f"the slurm engine needs Slurm's commands, and {missing[0]} is not on PATH",
            "run it on a login node of a Slurm cluster, perhaps after `module load slurm`",
        )


def environment() -> dict[str, str]:
    """Ours, without what an allocation has left there in which this process may run itself."""
    return {name: text for name, text in os.environ.items() if not name.startswith("SLURM_") or name in _KEPT}


def call(*argv: str, deadline_s: float = _DEADLINE_S) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm's to its end.

    Raises:
        EngineUnavailable: it cannot be started, or does not end in time.
    """
    try:
        return subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            env={**environment(), "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise EngineUnavailable(
            f"Slurm did not answer {argv[0]} within {format_duration(deadline_s)}", "see `scontrol ping`"
        ) from None
    except OSError as error:
        raise EngineUnavailable(f"{argv[0]} cannot be started: {error.strerror}") from None


def ask(*argv: str, deadline_s: float = _DEADLINE_S) -> str:
    """What a command of Slurm's prints; nothing, where it is about a job that Slurm does not know any more.

    Raises:
        EngineUnavailable: it fails otherwise, or does not answer.
    """
    done = call(*argv, deadline_s=deadline_s)
    if done.returncode == 0:
        return done.stdout
    if _UNKNOWN_JOB in done.stderr.lower():
        return ""
    raise EngineUnavailable(f"Slurm does not answer: {last_word(done.stderr) or argv[0]}", "see `scontrol ping`")


def last_word(said: str) -> str:
    """The last line that a command of Slurm's said, without what all of them begin with."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("Try ")]
    errors = [line for line in lines if "error: " in line] or lines
    return errors[-1].rpartition("error: ")[2] if errors else ""


_FIRST_S, _TELL_S = 2.0, 10.0
"""When it is first told what is waited for, and then how often."""
_SPARE_S = 30.0
"""Salloc keeps its own deadline; this is for one that does not."""
_LEAVE_S, _POLL_S = 5.0, 0.05
_NUMBER = re.compile(r"job (?:allocation )?(\d+)")
_GRANTED = re.compile(r"Granted job allocation (\d+)")


def allocate(argv: Sequence[str], deadline_s: float, announce: Announce) -> str:
    """Ask for an allocation and wait until there is one; returns the number of its job.

    Raises:
        ClusterError: Slurm gives none, or not in time.
    """
    with tempfile.TemporaryFile() as file:

        def said() -> str:
            return os.pread(file.fileno(), 1 << 20, 0).decode("utf-8", "replace")

        asking = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            env={**environment(), "LC_ALL": "C"},
            start_new_session=True,  # a Ctrl-C is for the lab, which has it leave the queue
            preexec_fn=lambda: processes.signal_on_parent_death(signal.SIGTERM),  # noqa: PLW1509  # there is one thread
        )
        began, pause_s = time.monotonic(), _FIRST_S
        try:
            while not poll_until(lambda: asking.poll() is not None, pause_s, _POLL_S):
                waited, pause_s = time.monotonic() - began, _TELL_S
                if waited > deadline_s + _SPARE_S:
                    why = f"Slurm gave no allocation within {format_duration(deadline_s)}"
                    raise ClusterError(why, "--allocation immediate=SECONDS")
                announce(f"waiting in Slurm's queue for {format_duration(round(waited))}{_why(said())}")
        finally:
            if asking.poll() is None:
                asking.terminate()  # it takes its job out of the queue
                if not poll_until(lambda: asking.poll() is not None, _LEAVE_S):
                    asking.kill()
                    asking.wait()
        granted = _GRANTED.search(said())
        if granted is None or asking.returncode:
            raise ClusterError(
                f"Slurm gave no allocation: {last_word(said()) or f'salloc ended with exit code {asking.returncode}'}",
                "`sinfo` shows what there is; --allocation partition=..., time=... or immediate=SECONDS asks otherwise",
            )
        return granted[1]


def _why(said: str) -> str:
    """What Slurm says that a job waits for."""
    state = ""
    if number := _NUMBER.search(said):
        with suppress(EngineUnavailable):
            state = ask("squeue", "--noheader", f"--jobs={number[1]}", "--format=%T: %r").strip()
    return f" (job {number[1]}, {state})" if number and state else ""


HOME = f"{label.NAMESPACE}.home"
"""The label that names the folder of its maker's clusters: two of them may have clusters of the same name."""
JOBS = "%i|%T|%N|%r|%k"
"""The format in which squeue is asked for jobs; a comment may hold anything, so it is the last."""
_ENDING = "COMPLETING"
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z/:_]*)=")
_NOTHING = ("", "None", "(null)", "Unknown", "N/A", "NonZeroExitCode")


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
    machines = [said for said in map(pairs, text.splitlines()) if "NodeName" in said]
    return [
        Host(
            name=said["NodeName"],
            address=said.get("NodeAddr") or said["NodeName"],
            state=said.get("State", ""),
            reason=_meant(said.get("Reason", "")),
        )
        for said in machines
    ]


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


def read_fate(text: str) -> Fate:
    """The answer of `scontrol --oneliner show job`."""
    said = pairs(text.partition("\n")[0])
    reason, when = _meant(said.get("Reason", "")), _meant(said.get("PreemptTime", ""))
    return Fate(state=said.get("JobState", ""), reason=reason, preempted=bool(when))


def least_machine(text: str) -> Machine:
    """The least machine of the default partition in the answer of `sinfo --format=%P|%c|%m`, or of all.

    Raises:
        EngineUnavailable: it names none.
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 2]
    rows = [row for row in rows if row[0].endswith("*")] or rows
    if not rows:
        raise EngineUnavailable("Slurm has no partition for you", "ask whoever runs the cluster")
    cores, megabytes = (min(int(row[at].rstrip("+")) for row in rows) for at in (1, 2))  # 16+ where some have more
    return Machine(cores=cores, memory_bytes=megabytes << 20)


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
