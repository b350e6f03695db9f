"""Names of files and folders in a record."""

from __future__ import annotations

from pathlib import Path

from lab.node.messages.agent import is_joined, nth_of, worker_of

RUNS = Path(".lab") / "runs"
README = "README.txt"
SCENARIO = "scenario.yaml"
PLAN = "plan.json"
EVENTS = "events.jsonl"
RESULT = "result.json"
STARTED = "started.json"
LOGS = "logs"
INDEX = "logs/index.jsonl"
LOCK = "logs/lock"
TRACE = "trace"
ATTEMPTS = "attempts"
OUTPUTS = "files"
CHECK_LOG = "check.log"
MOST_RANKS = 1 << 20
"""No run has more ranks: a larger number is damage."""
MOST_SHOWN_RANKS = 1 << 12
"""Most ranks of a record that views show: tables of bytes between ranks grow with the square."""

FILES = {
    README: "this list",
    RESULT: "verdict, reason, culprit, findings, each rank's end and notes; absent during the run",
    SCENARIO: "the scenario as resolved, without defaults",
    "*.py": "the script, and files next to it that stacks and tracebacks name",
    PLAN: "node, rank, environment, and arguments of each worker",
    EVENTS: "one fact per line: starts and exits of workers, notes, errors, clocks",
    f"{LOGS}/rank<N>.log": "everything that a rank printed; only the last state of lines that it rewrote",
    INDEX: "[rank, stream, offset, bytes, time] of each piece of output as it arrived; "
    "stream 2 is standard error, 3 the terminal; rank -1 is the check",
    LOCK: "locked during the run",
    f"{LOGS}/{CHECK_LOG}": "output of the scenario's check",
    f"{LOGS}/launcher-<node>.log": "output of torchrun or mpirun on a node, in all attempts",
    f"{TRACE}/rank<N>.jsonl": "calls of a rank (docs/trace.md); absent with --no-trace",
    f"{OUTPUTS}/...": f"files that ranks made or changed; once if equal on several ranks, else below {OUTPUTS}/rank<N>",
    f"{ATTEMPTS}/<N>/...": "the record of an earlier attempt, from 0; the other files are of the last one",
    STARTED: "which processes that scripts started are the ranks of the run",
    f"{TRACE}/worker<N>.jsonl": "calls of a worker whose script started the ranks",
    f"{TRACE}/process<N>.<M>.jsonl": "calls of the Mth other process that worker N started",
}
"""Description of each file of a record, in the order in which to read them: for users who open the folder, and the
docs.

Features add files later; they describe those in their `record_files`.
"""


def render_readme() -> str:
    """Return the list of files that every record contains."""
    files = "".join(f"{name}\n    {what}\n" for name, what in FILES.items())
    later = "Other verbs add files later, such as `lab report`: `lab help record` lists these too.\n"
    reading = "A recorded run. `lab show`, `lab explain`, and `lab report` read it. Its files:\n"
    return f"{reading}\n{files}\n{later}"


def rank_log(rank: int) -> str:
    """Return the name of a rank's log; rank -1 is the scenario's own check."""
    return f"rank{rank}.log" if rank >= 0 else CHECK_LOG


def launcher_log(node: str) -> str:
    """Return the name of the log of a launcher's process on a node, for all attempts."""
    return f"launcher-{node}.log"


def rank_trace(rank: int) -> str:
    """Return the name of the trace of a rank, or of a process that a script started and that is no rank."""
    return f"process{worker_of(rank)}.{nth_of(rank)}.jsonl" if is_joined(rank) else f"rank{rank}.jsonl"
