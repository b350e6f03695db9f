"""The result of a run, as `result.json` and `lab run --json` contain it."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Literal

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
    """The rank, node, or link that failed first and caused all other failures."""

    rank: int | None = None
    """The rank; None if a whole node or the engine was lost."""
    node: str = ""
    """Name of the node, `node0`..."""
    link: str = ""
    """The link between two nodes that broke by itself, `node0 - node2`; then no node is named."""
    error: str = ""
    """What happened, in one line."""
    traceback: str = ""
    """Last lines of the traceback or of the Python stack; empty if there is none."""
    cause: str = ""
    """The kind of failure in one word, such as `exception`, `killed`, or `cut_off`; empty if unknown."""

    @property
    def who(self) -> str:
        """`rank 2 on node2`, or the node or the rank alone, or the link."""
        return self.link or self.node if self.rank is None else f"rank {self.rank}{self.node and f' on {self.node}'}"


class RankResult(Frozen):
    """The result of one rank."""

    rank: int
    node: str = ""
    local_rank: int = 0
    exit_code: int | None = None
    """None: it did not exit (the lab stopped it, a signal killed it, or its node was lost)."""
    signal: str | None = None
    """Name of the signal that killed it, such as `SIGSEGV`; None if it exited."""
    stopped: bool = False
    """Whether the lab stopped it, because the run had ended for another reason."""
    error: str = ""
    """Last line of its exception, or why it was killed; empty if it did not fail."""
    traceback: str = ""
    """The traceback of its exception."""
    stack: str = ""
    """Its Python stack when the run hung."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Value of each `lab.note`, by name; the last one of repeated notes."""
    duration_s: float | None = None
    """Seconds from its start to its end."""
    log_path: Path | None = None
    """Its log on the host; for a rank that a script started, the log of its worker."""
    parent: int | None = None
    """The worker whose script started it; None for a worker."""

    @property
    def ended(self) -> str:
        """How it ended, in a word or two: `stopped`, `SIGSEGV`, `exit 1`; empty if unknown."""
        if self.stopped:
            return "stopped"
        return self.signal or (f"exit {self.exit_code}" if self.exit_code is not None else "")

    @property
    def log(self) -> str:
        """Its output, decoded as UTF-8 with invalid bytes replaced.

        Raises:
            RecordError: the log is no regular file, or too large.
        """
        if self.log_path is None:
            return ""
        try:
            with io.TextIOWrapper(open_log(self.log_path, MOST_LOG_BYTES), encoding="utf-8", errors="replace") as file:
                return file.read(MOST_LOG_BYTES)
        except FileNotFoundError:
            return ""


class Expectation(Frozen):
    """One expected outcome, and whether it was met."""

    what: str = ""
    """`exit`, `log`, `calls`, `snapshot`, `check`, `verdict`, `culprit`, `detected_within`, `reason`, `note NAME`, or
    `fault WHAT`."""
    rank: int | None = None
    """The rank that it concerns; None for the whole run."""
    expected: Any = None
    got: Any = None
    met: bool = False

    def sentence(self) -> str:
        """Return the expectation as one line of text; only this method words it."""
        if self.what == "snapshot" or self.what.startswith("check "):  # the value is already a sentence
            return f"{self.expected if self.what == 'snapshot' else self.what}: {clip_end(str(self.got), 400)}"
        where, what = f"rank {self.rank}: " if self.rank is not None else "", " ".join(self.what.splitlines())
        got = self.got if str(self.got).startswith("(nothing noted)") else repr(self.got)
        return f"{where}{what}: expected {clip_end(repr(self.expected), 200)}, got {clip_end(got, 200)}"


class Output(Frozen):
    """A file that a run created and that was fetched."""

    path: str
    """Below the folder of outputs."""
    ranks: tuple[int, ...] = ()
    """Ranks that created it; several if their files are alike."""
    bytes: int = 0


class Attempt(Frozen):
    """Workers that met each other, until they ended or their launcher restarted them."""

    number: int
    """From 0."""
    verdict: Verdict = "error"
    reason: str = ""
    """One sentence."""
    culprit: Culprit | None = None
    """The first failure in it; None if nothing failed, or if the cause is unknown."""
    summary: str = ""
    """The cause of its end, as a short clause; empty if the reason contains it."""
    nodes: tuple[str, ...] = ()
    """Name of the node of each of its ranks, in order of rank."""
    duration_s: float | None = None
    """Seconds from the first worker's start to the last one's end."""
    path: Path | None = None
    """Folder of its record."""

    @property
    def world_size(self) -> int:
        """The number of its ranks."""
        return len(self.nodes)

    @property
    def result(self) -> Result:
        """The whole result of an earlier attempt; for the last one, the result of the run.

        Raises:
            RecordError: its record no longer exists.
        """
        return Result.load(self.path or "")


class RecordedFinding(dict[str, Any]):
    """A finding behind a verdict, as in `result.json`; its keys are also attributes: `finding.kind`.

    `docs/result.schema.json` describes them, and `docs/explain.md` the kinds.
    """

    kind: str
    sentence: str
    """For people; its wording can change in each release."""
    ranks: Sequence[int]
    others: Sequence[int]
    link: str
    step: str
    lines: Sequence[str]
    seconds: float | None
    facts: Mapping[str, Any]
    """More facts, which depend on the kind."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"a finding has no {name!r}; allowed: {', '.join(self)}", name=name, obj=self)
        return self[name]


class Result(Frozen):
    """The result of one run; after restarts, it has the ranks and the verdict of the last attempt."""

    verdict: Verdict | Literal["running"]
    """`running` while the run is in progress."""
    reason: str = ""
    """One sentence."""
    scenario: str = "?"
    run: str = ""
    """Name of the run: the folder of its record."""
    engine: str = "?"
    cluster: str = "?"
    culprit: Culprit | None = None
    findings: tuple[RecordedFinding, ...] = ()
    """The findings behind the verdict, the first cause first. Other findings of `lab explain` are not included."""
    ranks: tuple[RankResult, ...] = ()
    parents: tuple[RankResult, ...] = ()
    """Workers that are no ranks, because their scripts started the ranks; their logs contain the output of those ranks.
    """
    expectations: tuple[Expectation, ...] = ()
    duration_s: float | None = 0.0
    """Seconds from the start of the first worker to the verdict; None if the record ends earlier."""
    faults: tuple[Mapping[str, Any], ...] = ()
    """Injected faults, in order:

    `fault`, `node`, `at_s` (since the workers started; null: before that), `why` (its trigger), `failed` (why it could
    not be injected; empty if it was), `detected_s` (seconds until something showed it; null: nothing did), `by` (who
    noticed it first).
    """
    outputs: tuple[Output, ...] = ()
    """Files that it created and that were fetched."""
    outputs_left_out: tuple[str, ...] = ()
    """Files that were not fetched, each with the reason."""
    outputs_folder: Path | None = None
    """Their folder on the host; None if there are none."""
    attempts: tuple[Attempt, ...] = ()
    """All attempts, including the last, if the launcher restarted the workers; else empty."""
    exit_code: int = 0
    """Exit code of the command line for this verdict."""
    path: Path | None = None
    """Folder of the record."""

    def __repr__(self) -> str:
        return f"<Result {self.verdict}: {self.reason!r}>"  # assertions of pytest show it

    @property
    def passed(self) -> bool:
        """Whether the verdict is `passed`."""
        return self.verdict == "passed"

    @property
    def restarts(self) -> int:
        """How often its launcher restarted the workers."""
        return max(0, len(self.attempts) - 1)

    @property
    def unmet(self) -> list[Expectation]:
        """The expectations that were not met."""
        return [expectation for expectation in self.expectations if not expectation.met]

    @property
    def unmet_by_script(self) -> list[Expectation]:
        """The same without faults that were never injected, for which no script is to blame."""
        return [one for one in self.unmet if not one.what.startswith("fault ")]

    @property
    def calls(self) -> Any:
        """The calls of its ranks: `result.calls[0]`, `result.calls.matches_snapshot()`.

        Raises:
            LabError: the feature that reads them is missing.
        """
        if (recorded := find_hook("calls_of_result")) is None:
            raise LabError("`calls` needs the feature calls, which is missing")
        return recorded(self)

    @classmethod
    def load(cls, folder: Path | str) -> Result:
        """Load the result of a recorded run, as the run returned it.

        Raises:
            RecordError: the record has no result, or a damaged one.
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
        """Parse the output of `to_json`, for a record that may have been moved; if `lenient`, skip damaged fields.

        Raises:
            Misfit: something is missing or damaged; if `lenient`, the verdict.
        """
        result = read_typed(cls, data, lenient=lenient)

        def with_log(rank: RankResult) -> RankResult:
            return replace(rank, log_path=folder / LOGS / rank_log(rank.rank if rank.parent is None else rank.parent))

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
        """Return the result as plain data, as in `result.json`."""
        return asdict(self, dict_factory=_without_paths)


def _without_paths(items: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in items}
