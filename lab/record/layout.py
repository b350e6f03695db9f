"""Where things are in a record."""

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
PREDICTION = "prediction.json"
LOGS = "logs"
INDEX = "logs/index.jsonl"
LOCK = "logs/lock"
TRACE = "trace"
ATTEMPTS = "attempts"
OUTPUTS = "files"
CHECK_LOG = "check.log"
REPORT = "report.html"
DIFF_REPORT = "diff.html"
SUITE_REPORT = "suite.html"
"""In the folder of runs."""
PERFETTO = "trace.pftrace"
CHROME = "trace.chrome.json"
FLIGHT_RECORDER = "flight-recorder"
CHAKRA = "chakra"
HTA = "hta"
MOST_RANKS = 1 << 20
"""No run has more: a rank from here on is damage."""
MOST_SHOWN_RANKS = 1 << 12
"""Ranks of one record that views show: tables of bytes from rank to rank grow with their square."""

FILES = {
    README: "this list",
    RESULT: "the verdict: its reason, who is to blame, every rank's end and notes, what was expected; absent while the "
    "run goes on, or where it was killed",
    PREDICTION: "of a run that was taken as a lesson: the question, what was predicted, what is right, what it teaches",
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
    REPORT: "the run as one page, once `lab report` has written it",
    DIFF_REPORT: "this run beside another one, once `lab report --diff` has written it",
    PERFETTO: "the trace for https://ui.perfetto.dev, once `lab trace --perfetto` has written it",
    CHROME: "the trace for Chrome and others, once `lab trace --chrome` has written it",
    f"{FLIGHT_RECORDER}/rank_<N>": "the trace for `torchfrtrace`, once `lab trace --flight-recorder` has written it",
    f"{CHAKRA}/lab.<N>.et": "the trace for simulators, once `lab trace --chakra` has written it; groups.json beside "
    "them says which ranks are in which group",
    f"{HTA}/rank<N>.json": "the trace for Holistic Trace Analysis, once `lab trace --hta` has written it",
}
"""What each file of a record is, in the order in which to look at them: for whoever opens the folder, and the docs."""


def readme() -> str:
    """The list of files that lies in every record."""
    files = "".join(f"{name}\n    {what}\n" for name, what in FILES.items())
    return f"A run on record: `lab show`, `lab explain` and `lab report` read it. What its files are:\n\n{files}"


def rank_log(rank: int) -> str:
    """Name of a rank's log; rank -1 is the scenario's own check."""
    return f"rank{rank}.log" if rank >= 0 else CHECK_LOG


def launcher_log(node: str) -> str:
    """Name of the log of a launcher's own process on a node; it is that of all attempts."""
    return f"launcher-{node}.log"


def rank_trace(rank: int) -> str:
    """Name of a rank's trace, or of one of a process that a script started and that is no rank."""
    if is_joined(rank):
        return f"process{worker_of(rank)}.{nth_of(rank)}.jsonl"
    return f"rank{rank}.jsonl"
