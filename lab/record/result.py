"""The outcome of a run, as `result.json` and `lab run --json` give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.spec.scenario import Verdict
from lab.words import clip


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The rank or node that failed first; everything else followed from it."""

    rank: int | None
    """The rank; None where a whole node or the engine went away."""
    node: str
    """Name of the node, `node0`..."""
    error: str
    """What happened, in one line."""
    traceback: str = ""
    """Last lines of the traceback or of the Python stack; empty where there is none."""


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """What became of one rank."""

    rank: int
    node: str
    local_rank: int
    exit_code: int | None = None
    """None: did not exit by itself (it was stopped, killed by a signal, or its node went away)."""
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
    """Its log on the host."""

    @property
    def log(self) -> str:
        """Everything that it printed, decoded as UTF-8 with bad bytes replaced."""
        if self.log_path is None or not self.log_path.exists():
            return ""
        return self.log_path.read_text(encoding="utf-8", errors="replace")


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One thing that had to come out, and whether it did."""

    what: str
    """`exit`, `log`, `calls`, `check`, `verdict`, `culprit`, `reason`, or `note NAME`."""
    rank: int | None
    """The rank it speaks of; None for the whole run."""
    expected: Any
    got: Any
    met: bool

    def sentence(self) -> str:
        """The expectation as one line of text, for a person."""
        where = f"rank {self.rank}: " if self.rank is not None else ""
        return f"{where}{self.what}: expected {clip(repr(self.expected), 200)}, got {clip(repr(self.got), 200)}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of one run."""

    verdict: Verdict
    reason: str
    """One sentence."""
    scenario: str
    run: str
    """Name of the run: the folder of its record."""
    engine: str
    cluster: str
    culprit: Culprit | None = None
    ranks: tuple[RankResult, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    duration_s: float = 0.0
    """Seconds from the start of the first worker to the verdict."""
    faults: tuple[Mapping[str, Any], ...] = ()
    """Faults that were applied, in order."""
    exit_code: int = 0
    """Exit code of the command line for this verdict."""
    path: Path | None = None
    """Folder of the record."""

    @property
    def passed(self) -> bool:
        """Whether the verdict is `passed`."""
        return self.verdict == "passed"

    def _repr_html_(self) -> str:
        """What Jupyter shows of it. The view is imported here, so that a result stays plain data everywhere else."""
        from lab.report.notebook import result_html

        return result_html(self)

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, as in `result.json`."""
        data = asdict(self)
        data["path"] = str(self.path) if self.path else None
        for rank in data["ranks"]:
            rank["log_path"] = str(rank["log_path"]) if rank["log_path"] else None
        return data
