"""The outcome of a run, as `result.json` and `lab run --json` give it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from lab.errors import LabError, RecordError
from lab.feature import find_hook, find_view
from lab.frozen import Frozen
from lab.node.messages.typed import read_typed
from lab.node.statement import problem_with
from lab.record.layout import ATTEMPTS, LOGS, RESULT, rank_log
from lab.record.record_files import MOST_LOG_BYTES, open_log, read_json
from lab.spec.scenario import Verdict
from lab.words import clip_end


class Culprit(Frozen):
    """The rank, node or link that failed first; everything else followed from it."""

    rank: int | None = None
    """The rank; None where a whole node or the engine went away."""
    node: str = ""
    """Name of the node, `node0`..."""
    link: str = ""
    """The link between two nodes that broke by itself, `node0 - node2`: then neither of them is named."""
    error: str = ""
    """What happened, in one line."""
    traceback: str = ""
    """Last lines of the traceback or of the Python stack; empty where there is none."""
    cause: str = ""
    """What sort of thing happened, in a word, such as `exception`, `killed` or `cut_off`; empty where that is not
    known."""

    @property
    def who(self) -> str:
        """`rank 2 on node2`, or the node alone, or the link."""
        return self.link or self.node if self.rank is None else f"rank {self.rank} on {self.node}"


class RankResult(Frozen):
    """What became of one rank."""

    rank: int
    node: str = ""
    local_rank: int = 0
    exit_code: int | None = None
    """None: it did not exit (it was stopped, killed by a signal, or its node went away)."""
    signal: str | None = None
    """Name of the signal that killed it, such as `SIGSEGV`; None where it exited."""
    stopped: bool = False
    """Whether the lab stopped it, because the run was over for another reason."""
    error: str = ""
    """Last line of what it raised, or why it was killed; empty if nothing went wrong."""
    traceback: str = ""
    """The traceback of what it raised."""
    stack: str = ""
    """Its Python stack when the run was found hung."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Value of each `lab.note`, by name; of one that was noted several times, the last."""
    duration_s: float | None = None
    """Seconds from its start to its end."""
    log_path: Path | None = None
    """Its log on the host; of a rank that a script started, that of its worker."""
    parent: int | None = None
    """The worker whose script started it; None of a worker."""

    @property
    def ended(self) -> str:
        """How it ended, in a word or two: `stopped`, `SIGSEGV`, `exit 1`; empty where that is not known."""
        if self.stopped:
            return "stopped"
        return self.signal or (f"exit {self.exit_code}" if self.exit_code is not None else "")

    @property
    def log(self) -> str:
        """Everything that it printed, decoded as UTF-8 with bad bytes replaced.

        Raises:
            RecordError: its log is no regular file, or too large.
        """
        if self.log_path is None:
            return ""
        try:
            with io.TextIOWrapper(open_log(self.log_path, MOST_LOG_BYTES), encoding="utf-8", errors="replace") as file:
                return file.read(MOST_LOG_BYTES)
        except FileNotFoundError:
            return ""


class Expectation(Frozen):
    """One thing that had to come out, and whether it did."""

    what: str = ""
    """`exit`, `log`, `calls`, `snapshot`, `check`, `verdict`, `culprit`, `detected_within`, `reason`, `note NAME`, or
    `fault WHAT`."""
    rank: int | None = None
    """The rank that it is about; None for the whole run."""
    expected: Any = None
    got: Any = None
    met: bool = False

    def sentence(self) -> str:
        """The expectation as one line of text, for a person; the only place that words one."""
        if self.what == "snapshot":  # what is got says who does what, and as a sentence
            return f"{self.expected}: {self.got}"
        where = f"rank {self.rank}: " if self.rank is not None else ""
        return f"{where}{self.what}: expected {clip_end(repr(self.expected), 200)}, got {clip_end(repr(self.got), 200)}"


class Output(Frozen):
    """A file that a run made and that came back."""

    path: str
    """Below the folder of outputs."""
    ranks: tuple[int, ...] = ()
    """Who made it; several, where theirs are alike."""
    bytes: int = 0


class Attempt(Frozen):
    """Workers that met one another, until they ended or their launcher began them anew."""

    number: int
    """From 0."""
    verdict: Verdict = "error"
    reason: str = ""
    """One sentence."""
    culprit: Culprit | None = None
    """Who failed first in it; None where nobody did, or where nobody can be named."""
    summary: str = ""
    """What ended it, in short, as a clause; empty: the reason says it."""
    nodes: tuple[str, ...] = ()
    """Name of the node of each of its ranks, in their order."""
    duration_s: float | None = None
    """Seconds from its first worker's start to its last one's end."""
    path: Path | None = None
    """Folder of its record."""

    @property
    def world_size(self) -> int:
        """How many ranks it had."""
        return len(self.nodes)

    @property
    def result(self) -> Result:
        """The whole result of an earlier one; of the last one, that of the run.

        Raises:
            RecordError: its record is not there any more.
        """
        return Result.load(self.path or "")


class Result(Frozen):
    """The outcome of one run; where its launcher began the workers anew, ranks and verdict of the last attempt."""

    verdict: Verdict
    reason: str = ""
    """One sentence."""
    scenario: str = "?"
    run: str = ""
    """Name of the run: the folder of its record."""
    engine: str = "?"
    cluster: str = "?"
    culprit: Culprit | None = None
    findings: tuple[Mapping[str, Any], ...] = ()
    """What the verdict rests on, the first cause first, each with `kind`, `facts` and `sentence`; see
    `docs/result.schema.json`. What `lab explain` finds besides is not among them."""
    ranks: tuple[RankResult, ...] = ()
    parents: tuple[RankResult, ...] = ()
    """Workers that are no ranks, because those are processes that their scripts started; what these printed is in the
    logs of their workers."""
    expectations: tuple[Expectation, ...] = ()
    duration_s: float | None = 0.0
    """Seconds from the start of the first worker to the verdict; None where the record ends before that."""
    faults: tuple[Mapping[str, Any], ...] = ()
    """What was broken on purpose, in order: `fault`, `node`, `at_s` (since the workers were let go; null: before that),
    `why` (what had set it off), `failed` (why it could not be done; empty where it was), `detected_s` (how long after
    it was in force something showed it; null: nothing did), `by` (who noticed it first)."""
    outputs: tuple[Output, ...] = ()
    """Files that it made and that came back."""
    outputs_left_out: tuple[str, ...] = ()
    """Files that did not, each with the reason."""
    outputs_folder: Path | None = None
    """Where they are on the host; None where there are none."""
    attempts: tuple[Attempt, ...] = ()
    """All of them, the last one too, where the launcher began the workers anew; empty where there was but one."""
    exit_code: int = 0
    """Exit code of the command line for this verdict."""
    path: Path | None = None
    """Folder of the record."""

    @property
    def passed(self) -> bool:
        """Whether the verdict is `passed`."""
        return self.verdict == "passed"

    @property
    def restarts(self) -> int:
        """How often its launcher began the workers anew."""
        return max(0, len(self.attempts) - 1)

    @property
    def unmet(self) -> list[Expectation]:
        """The expectations that were not met."""
        return [expectation for expectation in self.expectations if not expectation.met]

    @property
    def unmet_by_script(self) -> list[Expectation]:
        """The same without the faults that never came or could not be done: no script is to blame for those."""
        return [one for one in self.unmet if not one.what.startswith("fault ")]

    @property
    def calls(self) -> Any:
        """What its ranks called: `result.calls[0]`, `result.calls.matches_snapshot()`.

        Raises:
            LabError: the feature that reads them is not there.
        """
        recorded = find_hook("calls_of_result")
        if recorded is None:
            raise LabError("what ranks called is shown by the feature calls, which is not there")
        return recorded(self)

    @classmethod
    def load(cls, folder: Path | str) -> Result:
        """The result of a run on record, as the run returned it.

        Raises:
            RecordError: the record ends before a result, or that is damaged.
        """
        path = Path(folder)
        try:
            data = read_json(path, RESULT)
            if problem := problem_with(data):
                raise ValueError(f"it {problem}")
            return cls.from_json(data, path)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise RecordError(f"{path / RESULT} cannot be read: {why}", "see `lab runs`") from error

    @classmethod
    def from_json(cls, data: Any, folder: Path, *, lenient: bool = False) -> Result:
        """The inverse of `to_json`, for a record that may have been moved; what is damaged is left out if `lenient`.

        Raises:
            Misfit: something is missing or damaged; where `lenient`, the verdict.
        """
        result = read_typed(cls, data, lenient=lenient)

        def with_log(rank: RankResult) -> RankResult:
            printer = rank.rank if rank.parent is None else rank.parent
            return replace(rank, log_path=folder / LOGS / rank_log(printer))

        ranks, parents = map(with_log, result.ranks), map(with_log, result.parents)
        last = result.restarts
        attempts = (
            replace(one, path=folder if one.number == last else folder / ATTEMPTS / str(one.number))
            for one in result.attempts
        )
        return replace(result, path=folder, ranks=tuple(ranks), parents=tuple(parents), attempts=tuple(attempts))

    def _repr_html_(self) -> str | None:
        shown = find_view("notebook")
        return shown(self) if shown else None

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, as in `result.json`."""
        return asdict(self, dict_factory=_without_paths)


def _without_paths(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in items}
