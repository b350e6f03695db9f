"""Call Slurm's commands, parse their output, and wait for an allocation."""

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
from typing import Any, NamedTuple

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
"""Variables that select a Slurm cluster; the others belong to an allocation in which this process may run."""
_UNKNOWN_JOB = "invalid job id"


def refuse_absence() -> None:
    """Refuse to continue without Slurm's commands.

    Raises:
        EngineAbsent: A command is not on PATH.
    """
    if missing := [name for name in COMMANDS if shutil.which(name) is None]:
        hint = "run it on a login node of a Slurm cluster, perhaps after `module load slurm`"
        raise EngineAbsent(f"the slurm engine needs Slurm's commands, but {missing[0]} is not on PATH", hint)


def clean_environment() -> dict[str, str]:
    """Return the environment without variables of an allocation in which this process may run."""
    return {name: text for name, text in os.environ.items() if not name.startswith("SLURM_") or name in _KEPT}


def run_command(*argv: str, deadline_s: float = _DEADLINE_S) -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm to its end.

    Raises:
        EngineUnavailable: It cannot be started, or does not end in time.
    """
    environment = {**clean_environment(), "LC_ALL": "C"}
    return run_client(argv, (f"Slurm did not answer {argv[0]}", "see `scontrol ping`"), deadline_s, env=environment)


def run_client(
    argv: Sequence[str], silence: tuple[str, str], deadline_s: float, text: str = "", **how: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command that asks a scheduler to its end.

    Args:
        argv: the command.
        silence: the error and the hint if it does not end in time.
        deadline_s: seconds that it may take.
        text: its input.
        how: other arguments of `subprocess.run`.

    Raises:
        EngineUnavailable: It cannot be started, or does not end in time.
    """
    try:
        how = {"input": text, "capture_output": True, "text": True, "errors": "replace", **how}
        return subprocess.run(argv, check=False, timeout=deadline_s, **how)
    except subprocess.TimeoutExpired:
        what, hint = silence
        raise EngineUnavailable(f"{what} within {format_duration(deadline_s)}", hint) from None
    except OSError as error:
        raise EngineUnavailable(f"cannot start {argv[0]}: {error.strerror}") from None


def query_slurm(*argv: str, deadline_s: float = _DEADLINE_S) -> str:
    """Return the output of a command of Slurm; empty for a job that Slurm no longer knows.

    Raises:
        EngineUnavailable: The command fails otherwise, or does not answer.
    """
    done = run_command(*argv, deadline_s=deadline_s)
    if done.returncode == 0:
        return done.stdout
    if _UNKNOWN_JOB in done.stderr.lower():
        return ""
    raise EngineUnavailable(f"Slurm does not answer: {last_error_line(done.stderr) or argv[0]}", "see `scontrol ping`")


def last_error_line(output: str) -> str:
    """Return the last line of a command's error output, without its common prefix."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("Try ")]
    errors = [line for line in lines if "error: " in line] or lines
    return errors[-1].rpartition("error: ")[2] if errors else ""


_FIRST_S, _ANNOUNCE_S = 2.0, 10.0
"""Seconds until the first announcement of waiting, and between the next ones."""
_SPARE_S = 30.0
"""Salloc has its own deadline; this is for one that misses it."""
_LEAVE_S, _POLL_S = 5.0, 0.05
_NUMBER = re.compile(r"job (?:allocation )?(\d+)")
_GRANTED = re.compile(r"Granted job allocation (\d+)")


def request_allocation(argv: Sequence[str], deadline_s: float, announce: Announce) -> str:
    """Request an allocation, wait for it, and return the number of its job.

    Raises:
        ClusterError: Slurm grants none, or not in time.
    """
    with tempfile.TemporaryFile() as file:

        def read_messages() -> str:
            return os.pread(file.fileno(), 1 << 20, 0).decode("utf-8", "replace")

        salloc = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            env={**clean_environment(), "LC_ALL": "C"},
            start_new_session=True,  # the lab handles Ctrl-C, and removes the job from the queue
            preexec_fn=lambda: processes.signal_on_parent_death(signal.SIGTERM),  # noqa: PLW1509  # there is one thread
        )
        began, pause_s = time.monotonic(), _FIRST_S
        try:
            while not poll_until(lambda: salloc.poll() is not None, pause_s, _POLL_S):
                waited, pause_s = time.monotonic() - began, _ANNOUNCE_S
                if waited > deadline_s + _SPARE_S:
                    why = f"Slurm granted no allocation within {format_duration(deadline_s)}"
                    raise ClusterError(why, "wait longer: --allocation immediate=SECONDS")
                announce(f"waiting in Slurm's queue for {format_duration(round(waited))}{_why(read_messages())}")
        finally:
            if salloc.poll() is None:
                salloc.terminate()  # it removes its job from the queue
                if not poll_until(lambda: salloc.poll() is not None, _LEAVE_S):
                    salloc.kill()
                    salloc.wait()
        if (granted := _GRANTED.search(read_messages())) is None or salloc.returncode:
            reason = last_error_line(read_messages()) or f"salloc ended with exit code {salloc.returncode}"
            hint = "`sinfo` lists the machines; change partition, time, or immediate with --allocation"
            raise ClusterError(f"Slurm granted no allocation: {reason}", hint)
        return granted[1]


def _why(output: str) -> str:
    """Describe why a job waits, in Slurm's words."""
    state = ""
    if number := _NUMBER.search(output):
        with suppress(EngineUnavailable):
            state = query_slurm("squeue", "--noheader", f"--jobs={number[1]}", "--format=%T: %r").strip()
    return f" (job {number[1]}, {state})" if number and state else ""


HOME = f"{label.NAMESPACE}.home"
"""The label that names the folder of its creator's clusters: two folders may have clusters of the same name."""
JOBS = "%i|%T|%N|%r|%k"
"""The output format of squeue for jobs; the comment is last because it may contain any text."""
_ENDING = "COMPLETING"
_PAIR = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z/:_]*)=")
_NOTHING = ("", "None", "(null)", "Unknown", "N/A", "NonZeroExitCode")


class Job(NamedTuple):
    """A job of this user that the lab created."""

    number: str
    state: str
    """`RUNNING`, `PENDING`, ..."""
    hosts: str
    """In Slurm's short form: `n[0-2]`."""
    reason: str
    labels: Mapping[str, str]

    @property
    def cluster(self) -> str:
        """The name of its cluster."""
        return self.labels[label.CLUSTER]

    @property
    def ending(self) -> bool:
        """Whether Slurm has ended it and only waits for its processes."""
        return self.state == _ENDING


class Host(NamedTuple):
    """A machine of Slurm."""

    name: str
    address: str
    """An address, or a name that has one."""
    state: str
    reason: str


def read_jobs(text: str) -> Iterator[Job]:
    """Yield the jobs in squeue's output that have the lab's labels."""
    for line in text.splitlines():
        number, state, hosts, reason, comment = (line.split("|", 4) + [""] * 4)[:5]
        try:
            labels = json.loads(comment)
        except ValueError:
            continue
        if isinstance(labels, dict) and label.CLUSTER in labels:
            yield Job(number, state, hosts, reason, {name: str(value) for name, value in labels.items()})


def parse_pairs(line: str) -> dict[str, str]:
    """Parse the `Name=value` pairs of a line of scontrol; values may contain spaces."""
    matches = list(_PAIR.finditer(line))
    ends = [*(one.start() for one in matches[1:]), len(line)]
    return {one[1]: line[one.end() : end].strip() for one, end in zip(matches, ends, strict=False)}


def read_hosts(text: str) -> list[Host]:
    """Return the machines in the output of `scontrol --oneliner show node`."""
    machines = [fields for fields in map(parse_pairs, text.splitlines()) if "NodeName" in fields]
    return [
        Host(
            name=fields["NodeName"],
            address=fields.get("NodeAddr") or fields["NodeName"],
            state=fields.get("State", ""),
            reason=_meant(fields.get("Reason", "")),
        )
        for fields in machines
    ]


class Fate(NamedTuple):
    """The state of a job."""

    state: str
    """Slurm's word; empty if it no longer knows the job."""
    reason: str = ""
    preempted: bool = False
    """Whether Slurm reports a time of preemption."""

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state not in ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", _ENDING) or self.preempted

    @property
    def suspended(self) -> bool:
        """Whether Slurm has suspended all its processes, in favour of other jobs."""
        return self.state == "SUSPENDED"

    @property
    def description(self) -> str:
        """Return Slurm's explanation, as the end of a sentence that begins with the name of a node."""
        if not self.state:
            return "was ended by Slurm: its job is gone"
        state = "PREEMPTED" if self.preempted else self.state
        return f"was ended by Slurm: {state}{f' ({self.reason})' if self.reason else ''}"


def read_fate(text: str) -> Fate:
    """Parse the output of `scontrol --oneliner show job`."""
    fields = parse_pairs(text.partition("\n")[0])
    reason, when = _meant(fields.get("Reason", "")), _meant(fields.get("PreemptTime", ""))
    return Fate(state=fields.get("JobState", ""), reason=reason, preempted=bool(when))


def least_machine(text: str) -> Machine:
    """Return the smallest machine of the default partition, or of all, in the output of `sinfo --format=%P|%c|%m`.

    Raises:
        EngineUnavailable: It lists none.
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 2]
    rows = [row for row in rows if row[0].endswith("*")] or rows
    if not rows:
        raise EngineUnavailable("Slurm has no partition for you", "ask the cluster's administrator")
    cores, megabytes = (min(int(row[at].rstrip("+")) for row in rows) for at in (1, 2))  # `16+`: some have more
    return Machine(cores=cores, memory_bytes=megabytes << 20)


def is_well(host: Host) -> bool:
    """Return whether Slurm reports no fault of a machine."""
    words = re.split(r"[+*$~#!%@^-]", host.state.upper())
    return not {"DOWN", "FAIL", "FAILING", "ERROR", "NOT_RESPONDING", "NO_RESPOND"} & {*words} and "*" not in host.state


def is_idle(state: str) -> bool:
    """Return whether a machine is free for work."""
    return state.upper() == "IDLE"


def _meant(word: str) -> str:
    """Return Slurm's reason; empty if it gives none."""
    return "" if word in _NOTHING else word
