"""The data of a scenario: frozen, validated where it enters (`lab.spec.load`), trusted afterwards.

Each key of a scenario file is declared here, and only here: its data, its default, its allowed values, and below it
its line in the reference and the JSON Schema (`lab.spec.declare`). After a change, `dev/reference` writes both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, cast, get_args

from lab.errors import UsageError
from lab.frozen import Frozen
from lab.spec import keys, kinds
from lab.spec.declare import feature_keys_field, key_field
from lab.spec.launching import Launching
from lab.words import format_duration

Verdict = Literal["passed", "failed", "error", "hung", "timeout"]
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


def check_timeout(timeout_s: float) -> float:
    """Return a time limit in seconds.

    Raises:
        UsageError: it is not allowed.
    """
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        allowed = f"more than 0 and at most {format_duration(MAX_TIMEOUT_S)}"
        raise UsageError(f"the time limit is {format_duration(timeout_s)}; allowed: {allowed}")
    return timeout_s


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
    """Record up to this many elements on each side of a call, and a summary of larger tensors; 0: neither."""


class Tolerance(Frozen):
    """How far a float that was noted may be from the expected one; the larger of the two counts."""

    relative: float = key_field(1e-5, _DIFFERENCE, "relative: 1e-3")
    """Largest difference, as a fraction of the expected value."""
    absolute: float = key_field(1e-8, _DIFFERENCE, "absolute: 0.01")
    """Largest difference; the larger of the two counts."""


class Expect(Frozen):
    """What must come out of a run."""

    exit: Mapping[int, int] = key_field(dict, _EXIT_CODES, "exit: {0: 0, 1: 3}", "`0` for every rank")
    """Exit code per rank; a negative one is a signal. Other ranks must exit with 0, or with any code if `verdict` is
    not `passed`."""
    notes: Mapping[str, Any] = key_field(dict, keys.notes_kind(), "notes: {sum: world_size}", "none")
    """Expected value of each note: a literal, arithmetic such as `10.0 * rank`, or one value per rank; see Expected
    notes."""
    logs: Mapping[int, str] = key_field(dict, keys.per_rank(kinds.regex_kind()), r"logs: {1: '^received \d+$'}", "none")
    """A pattern that a rank's log contains; `^` and `$` match at line ends. A search of more than 20 s (1 s more per 10
    MB of log) fails."""
    check: str | None = key_field(None, keys.check_kind(), "check: verify.py:sums_agree", "none")
    """A function that the lab calls on node 0 with the results of all ranks."""
    verdict: Verdict = key_field("passed", kinds.choice_kind(get_args(Verdict)), "verdict: hung")
    """The verdict of the run itself."""
    culprit: int | str | None = key_field(None, keys.culprit_kind(), "culprit: 1", "not checked")
    """The first culprit: a rank, or the node that is the culprit or has it."""
    restarts: int | Sequence[int | str | None] | None = key_field(
        None, keys.restarts_kind(), "restarts: [node2]", "not checked"
    )
    """How often the launcher restarted the workers: a number, or a list of who failed first each time (a rank, a node,
    or `null`)."""
    reason: str | None = key_field(None, kinds.regex_kind(), "reason: 'rank 1 .* barrier'", "not checked")
    """A pattern that the run's reason contains."""
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

    name: str = key_field(MISSING, kinds.name_kind(), "name: ring-all-reduce", "the file's name")
    """Names the record."""
    script: Path = key_field(MISSING, keys.script_kind(), "script: train.py")
    """A file in the scenario's folder or below: no absolute path, no `..`, no link that leads out. Every node gets its
    folder, without such links, devices, pipes, and sockets."""
    folder: Path | None = key_field(None, keys.root_kind(), "folder: .", "the script's folder")
    """The folder that every node gets instead, and in which the script starts, such as the root of a repository. Ranks
    can import packages in it and in its `src`."""
    source: Path | None = None
    """The YAML file; None for a plain script."""
    learn: str = key_field("", kinds.text_kind(), "learn: Every rank ends with the sum.", "none")
    """One or two sentences that the scenario teaches, shown after the run."""
    nodes: int | None = key_field(None, _COUNT, "nodes: 3", "those of the cluster; 1 if the run makes its own")
    """How many nodes take part."""
    nproc_per_node: int | None = key_field(None, _COUNT, "nproc_per_node: 2", "that of the cluster; else 1")
    """Workers on each node."""
    backend: str | None = key_field(
        None, kinds.choice_kind(keys.BACKENDS), "backend: mpi", "PyTorch's: `gloo`, or `nccl` with a GPU"
    )
    """The backend of process groups for which the script names none; see backends."""
    launcher: Launching = key_field(
        Launching(), kinds.lazy_kind("lab.spec.launching", "launcher_kind"), "launcher: {torchrun: {max_restarts: 3}}"
    )
    """What starts and restarts the workers; see launchers."""
    args: tuple[str, ...] = key_field(
        (), kinds.list_of(kinds.text_or_number(), "a list of text and numbers"), "args: [--lr, 0.10, --rank, '{rank}']"
    )
    """Arguments of the script. Each rank gets its own value of `{rank}`, `{local_rank}`, `{node_rank}`, `{world_size}`,
    `{nnodes}`, `{nproc_per_node}`, `{master_addr}`, `{master_port}`, and `{shared}`, the folder that all nodes see. The
    rest is passed exactly as written."""
    env: Mapping[str, str] = key_field(dict, keys.environment_kind(), "env: {GLOO_SOCKET_IFNAME: eth0}")
    """Environment variables added on every rank, exactly as written."""
    timeout_s: float = key_field(60.0, kinds.duration_kind(MAX_TIMEOUT_S), "timeout: 2m", name="timeout", always=True)
    """How long a run may take before it counts as hung, or as a timeout if its ranks still progress. Up to a minute of
    a launcher's start does not count."""
    cold: bool = key_field(False, kinds.boolean_kind(), "cold: true")
    """Start a fresh interpreter for every worker instead of forking the warm agent."""
    one_user: bool = key_field(False, kinds.boolean_kind(), "one_user: true")
    """Run all ranks of a node as one user, as torchrun does. Otherwise each rank has its own user on the docker
    engine."""
    split_gpus: bool = key_field(False, kinds.boolean_kind(), "split_gpus: true")
    """Show each rank only its share of the node's GPUs, as `cuda:0`. Otherwise it sees all, as under torchrun."""
    rewrite_address: bool = key_field(False, kinds.boolean_kind(), "rewrite_address: true")
    """Have `init_process_group` use the run's own store, whatever `init_method` the script names, such as
    `tcp://10.1.1.20:23456` of a tutorial."""
    resources: Resources = key_field(Resources)
    """Limits of each node, where the run makes its own cluster."""
    image: str | None = key_field(None, kinds.image_kind(), "image: pytorch/pytorch:latest", "the lab's own")
    """Image of the nodes, on the docker engine, with Python 3.9 or newer and torch. Pulling it needs `lab run
    --pull`."""
    data: Mapping[str, Path] = key_field(dict, keys.data_folders(), "data: {mnist: ../data}", "none")
    """Folders of this machine that every rank reads as `$LAB_DATA/NAME`; see packages. Folders outside of the
    scenario's folder need `lab run --allow-volumes`."""
    volumes: tuple[keys.Volume, ...] = key_field((), keys.volume_list(), "volumes: [../data:/data:ro]")
    """Host folders that every node sees. Paths outside of the scenario's folder need `lab run --allow-volumes`. In the
    node, none may be in a system folder, such as `/etc`, `/usr`, `/opt`, `/var`, or `/tmp`."""
    outputs: tuple[str, ...] | None = key_field(
        (), keys.outputs_kind(), "outputs: [out, '*.pt']", "all files but caches"
    )
    """Files that come back if ranks make or change them: names of files or folders, or patterns with `*`; `false`:
    none. At most 4 GiB per run."""
    trace: Tracing = key_field(Tracing, example="trace: false")
    """Whether and how calls are recorded; see traces."""
    expect: Expect = key_field(Expect)
    """What must come out."""
    extra: Mapping[str, Any] = feature_keys_field()
    """The values of keys that features add, by key; see `lab.spec.declare.get_feature_values`."""

    @property
    def shipped(self) -> Path:
        """The folder that every node gets."""
        return self.folder or self.script.parent

    @property
    def script_path(self) -> str:
        """The path of the script in that folder."""
        return str(self.script.relative_to(self.shipped))

    @property
    def requirements(self) -> tuple[str, ...]:
        """Packages that the script needs in addition to those of its nodes; see `lab.spec.load`."""
        return cast("tuple[str, ...]", self.extra.get("requirements", ()))
