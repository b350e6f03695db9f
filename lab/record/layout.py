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
    RESULT: "the verdict: its reason, who is to blame, every rank's end and notes, what was expected; absent while the "
    "run goes on, or where it was killed",
    SCENARIO: "the scenario as it was resolved, without what is at its default",
    "*.py": "the script as it was, and the files beside it that stacks and tracebacks name",
    PLAN: "every worker's node, rank, environment and arguments, and how the run was to go",
    EVENTS: "what happened, a line a fact: workers started and exited, notes, errors, clocks of the nodes",
    f"{LOGS}/rank<N>.log": "everything that a rank printed; of a line that was written over and over, as progress bars "
    "are, its last state",
    INDEX: "a line a piece of output, in the order of arrival: [rank, stream, offset, bytes, time]; stream 2 is "
    "standard error, 3 the terminal that the rank had, rank -1 the scenario's check",
    LOCK: "locked while the run goes on",
    f"{LOGS}/{CHECK_LOG}": "what the scenario's own check printed",
    f"{LOGS}/launcher-<node>.log": "what a launcher other than the lab's own printed on a node, in all attempts",
    f"{TRACE}/rank<N>.jsonl": "what a rank called, as its recorder wrote it (docs/trace.md); without --no-trace",
    f"{OUTPUTS}/...": "files that ranks made or changed in their working folder; once where several made the "
    f"same, else below {OUTPUTS}/rank<N>",
    f"{ATTEMPTS}/<N>/...": "where a launcher began the workers anew: the record of an earlier attempt, the first is "
    "0; what stands beside this list is of the last one",
    STARTED: "where scripts started processes that joined a process group: which of them are the ranks of the run",
    f"{TRACE}/worker<N>.jsonl": "what a worker called that is no rank, because its script started those",
    f"{TRACE}/process<N>.<M>.jsonl": "what the Mth process of those called that worker N started, where it is no rank",
}
"""Description of each file of a record, in the order in which to read them: for users who open the folder, and the
docs.

Features add files later; they describe those in their `record_files`.
"""


def render_readme() -> str:
    """Return the list of files that every record contains."""
    files = "".join(f"{name}\n    {what}\n" for name, what in FILES.items())
    later = "Other verbs add files later, such as `lab report`: `lab help record` lists these too.\n"
    reading = "A run on record: `lab show`, `lab explain` and `lab report` read it. What its files are:\n"
    return f"{reading}\n{files}\n{later}"


def rank_log(rank: int) -> str:
    """Return the name of a rank's log; rank -1 is the scenario's own check."""
    return f"rank{rank}.log" if rank >= 0 else CHECK_LOG


def launcher_log(node: str) -> str:
    """Return the name of the log of a launcher's process on a node, for all attempts."""
    return f"launcher-{node}.log"


def rank_trace(rank: int) -> str:
    """Return the name of the trace of a rank, or of a process that a script started and that is no rank."""
    if is_joined(rank):
        return f"process{worker_of(rank)}.{nth_of(rank)}.jsonl"
    return f"rank{rank}.jsonl"
