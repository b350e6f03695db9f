"""What a script needs and not every backend or torch has; what it names itself, and what its groups then got."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lab.diagnosis.evidence import Explained
from lab.diagnosis.finding import Finding, Kind, Words
from lab.diagnosis.wording import render_lines
from lab.frozen import Frozen
from lab.node.messages.agent import Named
from lab.spec import kinds
from lab.spec.declare import get_feature_values, key_field
from lab.spec.keys import BACKENDS
from lab.spec.scenario import Scenario
from lab.words import clip_end, group_pairs, join_words, name_ranks


class Need(NamedTuple):
    """A feature that not every backend has."""

    name: str
    """As in the key `needs` of a scenario."""
    what: str
    """As the end of a sentence: `it needs ...`."""
    missing: Mapping[str, str]
    """Why, by backend that lacks it; text in quotation marks is a message of the backend or of PyTorch."""
    pattern: str = ""
    """A regular expression that matches scripts that need it; empty: scripts do not show it."""
    torch: str = ""
    """Oldest version of torch whose gloo has it; empty: each supported one."""


# fmt: off
_ROWS = (
    Need("monitored barrier", "a barrier that names missing ranks",
         dict.fromkeys(("mpi", "nccl"), '"monitored_barrier is only implemented for GLOO backend."'),
         r"\bmonitored_barrier\b"),
    Need("compared calls", "PyTorch's comparison of calls (TORCH_DISTRIBUTED_DEBUG=DETAIL)",
         {"mpi": "PyTorch does that for gloo, nccl, xccl, and ucc only"}),
    Need("calls apart", "calls that do not match other kinds of calls",
         {"mpi": "MPI matches the calls of a group by number only, so two different calls may both succeed"}),
    Need("noticed ends", "calls that fail when a peer is gone",
         {"mpi": "calls and MPI_Finalize keep waiting"}),
    Need("size by the script", "groups whose rank and size the script sets",
         {"mpi": '"... world_size (2) and rank (0) are ignored since they are assigned by the MPI runtime."'}),
    Need("place by the script", "a store at an address that the script sets",
         {"mpi": "MPI needs no store and ignores `init_method`"}),
    Need("gloo", "gloo itself: what it refuses, or how PyTorch calls it",
         {"mpi": "torch-mpi does what gloo refuses, and PyTorch calls it differently",
          "nccl": "nccl has other limits, and PyTorch calls it differently"}),
    Need("limited start", "a limit on how long ranks wait for each other at the start",
         {"mpi": "MPI_Init waits for all ranks, and takes no limit"}),
    Need("own ranks", "ranks that the script starts",
         {"mpi": '"... a rank started this process, and MPI knows only those that mpiexec starts"'}, r"\bmp\.spawn\("),
    Need("torchrun", "torchrun as its launcher", {"mpi": "only mpirun can start its ranks"}),
    Need("restarts", "restarts of ranks", {"mpi": "mpirun starts them once"}),
    Need("averages", "ReduceOp.AVG", {}, torch="2.8"),
    Need("reductions of reduce_scatter", "reduce_scatter with MAX or AVG", {}, torch="2.9"),
    Need("all_to_all", "all_to_all", {}, torch="2.12"),
    Need("named backends", "the backends that it names",
         dict.fromkeys(BACKENDS, "`--backend` replaces all of them")),
)
# fmt: on
NEEDS = {row.name: row for row in _ROWS}
"""By name."""


_NAMED = kinds.choice_kind(tuple(NEEDS), ", or torch>= and a version, such as torch>=2.9")
_TORCH = r"torch>=([0-9]+\.[0-9]+)"
_ITEM = kinds.Kind(
    _NAMED.allowed,
    lambda value: value.raw if value.kind == "text" and re.fullmatch(_TORCH, value.raw) else _NAMED.read(value),
    {"anyOf": [_NAMED.schema, {"type": "string", "pattern": f"^{_TORCH}$"}]},
)


class NeedsKeys(Frozen):
    """The key that lists what the script needs."""

    needs: tuple[str, ...] = key_field(
        (),
        kinds.list_of(_ITEM, f"a list of any of {join_words(NEEDS)}, torch>=VERSION"),
        "needs: [monitored barrier, torch>=2.9]",
        "none",
    )
    """What the script needs that not every backend has, and the oldest version of torch; see backends."""


def find_lacking(scenario: Scenario, backend: str) -> str:
    """Return why a scenario cannot run on a backend; empty if no reason is known.

    Its needs are those that it lists, those that its script's text shows, and its launcher.
    """
    needed = {*get_feature_values(scenario, NeedsKeys).needs, scenario.launcher.name}
    if scenario.launcher.max_restarts:
        needed.add("restarts")
    try:
        text = scenario.script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for need in NEEDS.values():
        if backend in need.missing and (need.name in needed or (need.pattern and re.search(need.pattern, text))):
            return f"it needs {need.what}; {backend}: {need.missing[backend]}"
    return ""


def find_needed_torch(scenario: Scenario, backend: str) -> Mapping[str, str]:
    """Return the oldest version of torch for a scenario, empty for any, and what needs it, as fields of a claim."""
    listed = get_feature_values(scenario, NeedsKeys).needs
    named = [NEEDS[name] for name in listed if name in NEEDS and backend == "gloo"]
    needed = [(need.torch, f"{need.what} over gloo") for need in named if need.torch]
    needed += [(match[1], scenario.name) for name in listed if (match := re.fullmatch(_TORCH, name))]
    least, user = max(needed, key=lambda one: [*map(int, one[0].split("."))], default=("", ""))
    return {"least_torch": least, "torch_user": user}


_LONGEST_BACKEND = 80


class BackendKind(Kind):
    """The kinds of findings of this feature."""

    BACKEND = "backend", 8
    ADDRESS = "address", 8


class BackendNamed(Finding):
    """A backend or address that a script named, other than the run's, and what happened to it."""

    kind: Kind = BackendKind.BACKEND
    named: str
    backend: str
    instead: bool = False
    at: tuple[str, ...] = ()

    def render(self) -> Words:
        """Render which ranks named it, and what the groups got."""
        where = render_lines(clip_end(line, _LONGEST_BACKEND) for line in self.at)
        who = f"{name_ranks(self.others)} named {clip_end(self.named, _LONGEST_BACKEND)}{where}"
        if self.instead:
            return f"{who}, but got {self.backend} instead, as requested"
        return f"{who}, not {self.backend} as the scenario says"


def explain_backends(run: Explained) -> list[Finding]:
    """Return a finding for each backend or address that scripts named and the run does not have."""
    return find_named_backends(run.evidence.facts.named)


def find_named_backends(named: Sequence[Named]) -> list[Finding]:
    """Return a finding for each backend or address that scripts named and the run does not have."""
    alike = group_pairs(((one.named, one.backend, one.instead), one) for one in named)
    findings = list[Finding]()
    for (name, backend, instead), ones in alike.items():
        others, lines = tuple(sorted({one.rank for one in ones})), tuple(one.at for one in ones)
        kind = BackendKind.ADDRESS if "://" in name else BackendKind.BACKEND
        facts: dict[str, Any] = {"named": name, "backend": backend, "instead": instead, "at": lines}
        findings.append(BackendNamed(kind=kind, lines=lines, others=others, **facts))
    return findings
