"""The data of a scenario: frozen, validated where it enters (`lab.spec.load`), trusted afterwards.

Each key of a scenario file is declared here, and only here: its data, its default, its allowed values, and below it
its line in the reference and the JSON Schema (`lab.spec.declare`). After a change, `dev/reference` writes both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, get_args

from lab.frozen import Frozen
from lab.spec import keys, kinds
from lab.spec.declare import feature_keys_field, key_field
from lab.spec.keys import Volume
from lab.spec.kinds import lazy_kind
from lab.spec.launching import Launching

Verdict = Literal["passed", "failed", "error", "hung"]
MAX_NODES = 1024
"""Most nodes, and most workers on one node, that a scenario can ask for."""
MAX_TIMEOUT_S = 720 * 3600
MAX_TRACE_VALUES = 1_000_000
"""Most elements of one side of a call that a trace can store exactly."""
MIN_MEMORY_BYTES = 64 * 1024**2
"""Least memory of a node: with less, no Python with torch starts."""

_COUNT = kinds.whole_number(1, MAX_NODES)
_CORES = kinds.number_kind("a number of cores, more than 0, at most 1024", above=0, high=1024)
_MEMORY = kinds.size_kind(MIN_MEMORY_BYTES, 1024**5)
_EXIT_CODES = keys.per_rank(kinds.whole_number(-64, 255))
_DIFFERENCE = kinds.number_kind("a number, 0 or more", low=0)


class Resources(Frozen):
    """Limits of one node."""

    cpus: float | None = key_field(None, _CORES, "cpus: 0.5", "no limit")
    """CPU cores that a node may use."""
    memory_bytes: int | None = key_field(None, _MEMORY, "memory: 1GiB", "no limit", name="memory")
    """Memory that a node may use."""
    gpus: int = key_field(0, kinds.whole_number(0, 64), "gpus: 1")
    """GPUs of one node."""


class Tracing(Frozen):
    """Whether and how the collectives of a run are recorded."""

    on: bool = True
    """Whether they are recorded."""
    values: int | None = key_field(None, kinds.whole_number(0, MAX_TRACE_VALUES), "values: 1000", "`256`")
    """Up to this many elements of one side of a call are recorded as they are, larger ones as a summary; 0: neither."""


class Tolerance(Frozen):
    """How far a float that was noted may be from the expected one; the larger of the two counts."""

    relative: float = key_field(1e-5, _DIFFERENCE, "relative: 1e-3")
    """Largest difference, as a part of the expected value."""
    absolute: float = key_field(1e-8, _DIFFERENCE, "absolute: 0.01")
    """Largest difference; the larger of the two counts."""


class Expect(Frozen):
    """What must come out of a run."""

    exit: Mapping[int, int] = key_field(dict, _EXIT_CODES, "exit: {0: 0, 1: 3}", "`0` for every rank")
    """Exit code per rank; a negative one is the signal that killed it. A rank that is not
    named must exit with 0, or, where `verdict` is not `passed`, with any code."""
    notes: Mapping[str, Any] = key_field(dict, keys.notes_kind(), "notes: {sum: world_size}", "none")
    """Expected value by note: a literal, arithmetic such as `10.0 * rank`, one value per rank; see Expected notes."""
    logs: Mapping[int, str] = key_field(dict, keys.per_rank(kinds.regex_kind()), r"logs: {1: '^received \d+$'}", "none")
    """What must be found in a rank's log; `^` and `$` are ends of lines. A search that
    computes for more than 20 s (in a long log, 1 s more for every 10 MB) is given up, and the expectation not met."""
    check: str | None = key_field(None, keys.check_kind(), "check: verify.py:sums_agree", "none")
    """A function that is called inside node 0 with the results of all ranks."""
    verdict: Verdict = key_field("passed", kinds.choice_kind(get_args(Verdict)), "verdict: hung")
    """The verdict that the bare run must have."""
    culprit: int | str | None = key_field(None, keys.culprit_kind(), "culprit: 1", "not checked")
    """The rank that must be named as the first culprit; or the node that has to be, or that has the one that is."""
    restarts: int | Sequence[int | str | None] | None = key_field(
        None, keys.restarts_kind(), "restarts: [node2]", "not checked"
    )
    """How often the launcher began the workers anew: a number, or a list of who failed first each time: a rank, a node,
    or `null` where nobody did."""
    reason: str | None = key_field(None, kinds.regex_kind(), "reason: 'rank 1 .* barrier'", "not checked")
    """What must be found in the run's reason."""
    tolerance: Tolerance = key_field(Tolerance)
    """How far a float that was noted may be from the expected one; the larger of the two counts."""
    extra: Mapping[str, Any] = feature_keys_field("expect")
    """The values of keys that features add, by key."""

    @property
    def by_rank(self) -> list[Mapping[int, Any]]:
        """Expectations by rank, except notes."""
        return [self.exit, self.logs, *(value for value in self.extra.values() if isinstance(value, Mapping))]


class Scenario(Frozen):
    """What to run, on what cluster, and what must come out."""

    name: str = key_field(
        MISSING, kinds.name_kind(), "name: ring-all-reduce", "the file's name, with `-` for what is not allowed"
    )
    """Names the record."""
    script: Path = key_field(MISSING, keys.script_kind(), "script: train.py")
    """A file in the folder of the scenario or below: not absolute, no `..`, no link that leads out. Its folder is
    shipped to every node; links in it that lead out, devices, pipes and sockets are left out and named."""
    source: Path | None = None
    """The YAML file; None for a plain script."""
    learn: str = key_field("", kinds.text_kind(), "learn: Every rank ends with the sum.", "none")
    """One or two sentences: the idea that the scenario teaches, told after the run."""
    nodes: int | None = key_field(None, _COUNT, "nodes: 3", "as many as the cluster has; 1 where the run makes its own")
    """How many nodes take part."""
    nproc_per_node: int | None = key_field(None, _COUNT, "nproc_per_node: 2", "as the cluster says; else 1")
    """Workers on each node."""
    backend: str | None = key_field(
        None,
        kinds.choice_kind(keys.BACKENDS),
        "backend: mpi",
        "what PyTorch takes: `gloo`, or `nccl` where it sees a GPU",
    )
    """What carries the bytes of the process groups for which the script names no backend; see backends."""
    launcher: Launching = key_field(
        Launching(), lazy_kind("lab.spec.launching", "launcher_kind"), "launcher: {torchrun: {max_restarts: 3}}"
    )
    """What starts the workers, and how often anew: the lab itself, or torchrun's agents, one a node; see launchers."""
    args: tuple[str, ...] = key_field(
        (), kinds.list_of(kinds.text_or_number(), "a list of text and numbers"), "args: [--lr, 0.10]"
    )
    """Arguments of the script, the same on every rank, passed exactly as written."""
    env: Mapping[str, str] = key_field(dict, keys.environment_kind(), "env: {GLOO_SOCKET_IFNAME: eth0}")
    """Environment variables added on every rank, exactly as written."""
    timeout_s: float = key_field(60.0, kinds.duration_kind(MAX_TIMEOUT_S), "timeout: 2m", name="timeout", always=True)
    """How long a run may take before it is hung; until a launcher has started a rank, a minute of it is not counted."""
    cold: bool = key_field(False, kinds.boolean_kind(), "cold: true")
    """Start a fresh interpreter for every worker instead of forking the warm agent."""
    one_user: bool = key_field(False, kinds.boolean_kind(), "one_user: true")
    """Let the ranks of a node be one user, as under torchrun: they may open each other's private files, and kill each
    other. Otherwise each is a user of its own on the docker engine."""
    resources: Resources = key_field(Resources)
    """Limits of each node, where the run makes its own cluster."""
    image: str | None = key_field(None, kinds.image_kind(), "image: pytorch/pytorch:latest", "the lab's own")
    """Image of the nodes, on the docker engine: anything with Python >= 3.9 and torch. One that the engine does not
    have needs `lab run --pull`."""
    data: Mapping[str, Path] = key_field(dict, keys.data_folders(), "data: {mnist: ../data}", "none")
    """Folders of this machine that every rank reads as `$LAB_DATA/NAME`; they are not shipped; see packages. What is
    not in the folder of the scenario, or below, needs `lab run --allow-volumes`."""
    volumes: tuple[Volume, ...] = key_field((), keys.volume_list(), "volumes: [../data:/data:ro]")
    """Host folders that every node sees, where the run makes its own cluster. The host's path must exist; what is not
    in the folder of the scenario, or below, needs `lab run --allow-volumes`. None may be in a folder of the node's own,
    such as `/etc`, `/usr`, `/opt`, `/var` or `/tmp`."""
    outputs: tuple[str, ...] | None = key_field(
        (), keys.outputs_kind(), "outputs: [out, '*.pt']", "all files but caches"
    )
    """Files in the working folder that are brought back if ranks make or change them: names of files or folders, or
    patterns with `*`; `false`: none. At most 64 MiB of a run; what is larger is left out and named."""
    trace: Tracing = key_field(Tracing, example="trace: false")
    """Whether collectives are recorded, and how; see traces."""
    expect: Expect = key_field(Expect)
    """What must come out."""
    extra: Mapping[str, Any] = feature_keys_field()
    """The values of keys that features add, by key; see `lab.spec.declare.get_feature_values`."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """Packages that the script needs in addition to those of its nodes; see `lab.spec.load`."""
        named: tuple[str, ...] = self.extra.get("requirements", ())
        return named
