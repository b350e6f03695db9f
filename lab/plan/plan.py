"""Plan a run from a scenario and a cluster: its size, the cluster it needs, and each worker's environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Any, NamedTuple

from lab.errors import ClusterUnfit, UsageError
from lab.frozen import Frozen
from lab.node import warm
from lab.node.messages.agent import OUTPUT_BYTES, STRICT_OUTPUT_BYTES
from lab.node.rank import groups
from lab.plan.cluster import STOPPED, ClusterInfo, Shape
from lab.spec.keys import STARTED_BY, check_backend
from lab.spec.launching import LAB, Launching, Layout, Starter, find_launcher
from lab.spec.load import KEY, merge_requirements
from lab.spec.scenario import MAX_TRACE_VALUES, Resources, Scenario, Tracing, check_timeout
from lab.words import format_count, join_words, name_nodes


class PlanOptions(Frozen):
    """Options that override the scenario; None means the value of the scenario or the cluster."""

    nodes: int | None = None
    """Nodes that take part."""
    nproc_per_node: int | None = None
    """Workers on each node."""
    cold: bool = False
    """Start new interpreters instead of forking the agents."""
    timeout_s: float | None = None
    """Seconds after which the run is hung."""
    trace: bool = True
    """Record the collectives, unless the scenario disables it."""
    output_bytes: int | None = None
    """Most bytes that each rank may print; the rest is dropped."""
    backend: str | None = None
    """Carries the data of all process groups, whatever backend the script names for them."""
    one_user: bool = False
    """Run the ranks of a node as one user, as torchrun does."""
    split_gpus: bool = False
    """Show each rank only its share of the node's GPUs."""
    rewrite_address: bool = False
    """Have groups meet at the run's own store, whatever address the script names."""
    fresh: bool = False
    """Empty the shared folder first."""
    trace_values: int | None = None
    """Keep at most this many elements of one side of a call; 0: neither elements nor summaries."""
    interactive: int | None = None
    """The rank that has the user's terminal, from its start to its end."""
    launcher: str | None = None
    """The program that starts the workers."""
    network: str | Mapping[str, Any] | None = None
    """The links between nodes, as the key `network` describes them."""
    faults: Sequence[Any] = ()
    """Faults in addition to those of the scenario."""

    def size_of_run(self, scenario: Scenario, shape: Shape) -> tuple[int, int]:
        """Return the nodes of a run, and the workers on each, on a cluster of this shape."""
        nproc_per_node = self.nproc_per_node or scenario.nproc_per_node or shape.nproc_per_node
        return self.nodes or scenario.nodes or shape.nodes, nproc_per_node


_ADDED = ("requirements", "data")
"""A scenario may have its own values of these fields; requested ones are added to them."""


def has_wishes(scenario: Scenario) -> bool:
    """Return whether a scenario needs limits, an image, packages, or folders of its own."""
    wishes = (scenario.volumes, scenario.image, scenario.requirements, scenario.data)
    return scenario.resources != Resources() or any(wishes)


def with_asked(scenario: Scenario, asked: Mapping[str, Any]) -> Scenario:
    """Return the scenario with the requested image, packages, and data, which take precedence.

    Packages and data are added to its own; the requested one of the same name wins.
    """
    requirements = merge_requirements(scenario.requirements, asked.get("requirements") or ())
    return replace(
        scenario,
        image=asked.get("image") or scenario.image,
        extra={**scenario.extra, KEY: requirements} if requirements else scenario.extra,
        data={**scenario.data, **(asked.get("data") or {})},
    )


def shape_for(scenario: Scenario, options: PlanOptions, asked: Mapping[str, Any]) -> Shape:
    """Return the shape of the cluster for one run.

    Args:
        scenario: what runs on it; its default size is 1.
        options: may override the size.
        asked: requested fields of the shape; they take precedence over the scenario.
    """
    nodes, nproc_per_node = options.size_of_run(scenario, Shape(nodes=1))
    whole = with_asked(scenario, asked)
    volumes = {volume.target: volume for volume in (*scenario.volumes, *asked.get("volumes", ()))}
    size = {"nodes": nodes, "nproc_per_node": nproc_per_node}
    added = {"volumes": tuple(volumes.values()), "requirements": whole.requirements, "data": whole.data}
    return Shape(**{**size, **_wishes(scenario), **asked, **added})


def shape_for_all(scenarios: Sequence[Scenario], options: PlanOptions, asked: Mapping[str, Any]) -> Shape:
    """Return the shape of the cluster for several runs: as many nodes as the largest needs."""
    return Shape(**{"nodes": max(options.size_of_run(one, Shape(nodes=1))[0] for one in scenarios), **asked})


def shape_fields_for_own(scenario: Scenario, asked: Mapping[str, Any], shared: Shape | None) -> dict[str, Any]:
    """Return the fields of one scenario's own cluster that the scenario does not set itself."""
    own = {"nodes", *_wishes(scenario), *(["nproc_per_node"] if scenario.nproc_per_node else [])}
    as_shared = {name: value for name, value in (vars(shared) if shared else {}).items() if name not in _ADDED}
    return {name: value for name, value in {**as_shared, **asked}.items() if name not in own}


def planned_clusters(
    scenarios: Sequence[Scenario], options: PlanOptions, asked: Mapping[str, Any], there: ClusterInfo | None, name: str
) -> list[ClusterInfo]:
    """Return the cluster of each scenario: the existing one, or one without nodes yet."""
    if len(scenarios) == 1:
        return [there or unmade_cluster(shape_for(scenarios[0], options, asked), name)]
    shared = there or unmade_cluster(shape_for_all(scenarios, options, asked), name)
    return [
        unmade_cluster(
            shape_for(scenario, options, shape_fields_for_own(scenario, asked, shared.shape)), own_name(name)
        )
        if has_wishes(scenario)
        else shared
        for scenario in scenarios
    ]


def own_name(name: str) -> str:
    """Return the name of the cluster that one of several scenarios gets for itself."""
    return f"{name[:36]}-own"


def unmade_cluster(shape: Shape, name: str) -> ClusterInfo:
    """Return a cluster of this shape before it is created."""
    return ClusterInfo(name=name, engine="", shape=shape, nodes=(), owner="")


def _wishes(scenario: Scenario) -> dict[str, Any]:
    return {name: value for name, value in {**vars(scenario.resources), "image": scenario.image}.items() if value}


def refuse_unfit(cluster: ClusterInfo, scenario: Scenario, options: PlanOptions) -> None:
    """Refuse a scenario that a cluster cannot run as requested.

    Raises:
        ClusterUnfit: the cluster is too small, or has other limits than the scenario wants.
    """
    (nodes, _), own = options.size_of_run(scenario, cluster.shape), f"--name {cluster.name}"
    if nodes > cluster.shape.nodes:
        why = f"{scenario.name} needs {nodes} nodes, but cluster {cluster.name} has {cluster.shape.nodes}"
        raise ClusterUnfit(why, f"`lab down {own}` and `lab up {own} --nodes {nodes}`, or use another --name")
    data = {**cluster.shape.data, **scenario.data}
    if differences := cluster.shape.differences(replace(cluster.shape, **_wishes(scenario), data=data)):
        why = f"{scenario.name} does not fit cluster {cluster.name} ({'; '.join(differences)})"
        raise ClusterUnfit(why, f"run it without a cluster (`lab down {own}` first), or use another --name")


class Part(Frozen):
    """A feature's part of a plan. This one sets variables of each worker; others derive from it."""

    name: str
    """Its key in `plan.json`."""
    value: Any = None
    """Its value there."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of each worker."""
    sentence: str = ""
    """Its line for `--dry-run`."""
    companion: str = "lab.run.options:Companion"
    """The companion of the run, as `module:class`; see `lab.run.options`."""

    def data(self) -> Any:
        """Return the value as plain data."""
        return self.value

    def sentences(self) -> list[str]:
        """Return its lines for `--dry-run`."""
        return [self.sentence]

    def before(self) -> Sequence[tuple[str, str, bool]]:
        """Return what stops or starts nodes before the run begins: in words, the node, and whether it then runs."""
        return ()

    def starting(self) -> list[str]:
        """Describe what starts nodes during the run."""
        return []


VARIABLE = "CUDA_VISIBLE_DEVICES"


def split_gpus(gpus: int, nproc_per_node: int, local_rank: int) -> range:
    """Return the GPUs of one rank on a node with this many: an equal share for each rank, give or take one.

    If there are more ranks than GPUs, neighbouring ranks share one.
    """
    first, end = (number * gpus // nproc_per_node for number in (local_rank, local_rank + 1))
    return range(first, max(end, first + 1))


def gpu_variables(cluster: ClusterInfo, nproc_per_node: int, rank: int, *, split: bool = False) -> dict[str, str]:
    """Return the variables that select a rank's GPUs; empty without GPUs, or if the cluster sets them itself.

    A rank sees all GPUs of its node, as under torchrun; with `split`, its share of them. A container numbers its GPUs
    from 0; local nodes use those of the machine, one node after the other. Only Slurm knows the numbers of a node's
    GPUs, so its ranks always see all of them. Ranks that share a GPU say that they are on different hosts.
    """
    gpus = cluster.shape.gpus
    if not gpus or VARIABLE in cluster.shape.env or cluster.gpus == "engine":
        return {}
    node_rank, local_rank = divmod(rank, nproc_per_node)
    before = node_rank * gpus if cluster.gpus == "machine" else 0
    visible = split_gpus(gpus, nproc_per_node, local_rank) if split else range(gpus)
    variables = {VARIABLE: ",".join(str(before + number) for number in visible)}
    if split and nproc_per_node > gpus:  # nccl refuses two ranks of one host on one GPU
        variables["NCCL_HOSTID"] = f"{cluster.name}/rank{rank}"
    return variables


HOST = "node0"
"""The node with the rendezvous store: no run begins or continues without it."""


def list_present_nodes(cluster: ClusterInfo, nnodes: int, parts: Sequence[Part]) -> list[str]:
    """Return the nodes that run when the run begins: not stopped ones, after the actions of its parts."""
    there = {f"node{rank}": True for rank in range(nnodes)}
    there |= {node.name: node.state != STOPPED for node in cluster.nodes[:nnodes]}
    there |= {node: runs for part in parts for _, node, runs in part.before()}
    return [name for name, runs in there.items() if runs]


def refuse_absence(name: str, cluster: ClusterInfo, nnodes: int, launching: Launching, parts: Sequence[Part]) -> None:
    """Refuse a run that cannot begin, or not with its faults, because nodes do not run.

    Raises:
        ClusterUnfit: too many nodes are stopped.
        UsageError: its own parts stop too many nodes before it begins, or start one that the launcher does not add.
    """
    least = launching.least_nodes(nnodes)
    needs = format_count(nnodes, "node")
    if least < nnodes:
        needs = f"at least {format_count(least, 'node')}, including {HOST}"
    there = list_present_nodes(cluster, nnodes, parts)
    missing = [f"node{rank}" for rank in range(nnodes) if f"node{rank}" not in there]
    if len(there) < least or HOST not in there:
        if stops := [what for part in parts for what, node, _ in part.before() if node in missing]:
            why = f"{name} would {join_words(stops)} before it begins, but the launcher {launching.name} needs {needs}"
            raise UsageError(why, "use `launcher: {torchrun: {min_nodes: ...}}`, which starts with fewer nodes")
        are = "is" if len(missing) == 1 else "are"
        why = f"{name} needs {needs}, but {name_nodes(missing)} of cluster {cluster.name} {are} stopped"
        start = f"`lab start {' '.join(missing)}`, `lab fault heal` if a fault did it, or use fewer nodes with --nodes"
        raise ClusterUnfit(why, start)
    if (starts := [one for part in parts for one in part.starting()]) and least == nnodes:
        why = f"{name} has to {starts[0]} during the run, but the launcher {launching.name} accepts no new nodes"
        raise UsageError(why, "use `launcher: {torchrun: {min_nodes: ...}}`, which accepts them")


MAX_WORLD_SIZE = 4096
ARGUMENTS = {
    "rank": "RANK",
    "local_rank": "LOCAL_RANK",
    "node_rank": "GROUP_RANK",
    "world_size": "WORLD_SIZE",
    "nnodes": "GROUP_WORLD_SIZE",
    "nproc_per_node": "LOCAL_WORLD_SIZE",
    "master_addr": "MASTER_ADDR",
    "master_port": "MASTER_PORT",
    "shared": "LAB_SHARED",
}
"""Names in braces that arguments of a script can contain -> the variable of the rank that replaces them."""
_BRACES = re.compile(r"\{(" + "|".join(ARGUMENTS) + r")\}")
_OPTION = rf"(?<!\S)(--?({'|'.join(ARGUMENTS).replace('_', '[-_]')}))([= ][^\s-]\S*|(?!\S))"


def insert_placeholders(words: str) -> str:
    """Replace the value of each option that each rank needs its own of: `--rank 0` becomes `--rank '{rank}'`."""
    return re.sub(_OPTION, lambda match: f"{match[1]} '{{{match[2].replace('-', '_')}}}'", words)


class WorkerPlan(NamedTuple):
    """The plan of one worker."""

    rank: int
    local_rank: int = 0
    node_rank: int = 0
    node: str = ""
    env: Mapping[str, str] = {}
    """Variables in addition to the node's own environment."""
    argv: tuple[str, ...] = ()
    """The script, relative to its folder, and its arguments."""
    expected_code: int = 0
    """The exit code that counts as no failure."""


class Plan(Frozen):
    """A planned run."""

    run: str
    scenario: Scenario
    nnodes: int
    nproc_per_node: int
    master_addr: str
    master_port: int
    cold: bool
    one_user: bool
    fresh: bool
    output_bytes: int
    backend: str | None
    """Carries the data; None: the backend that the script names, or PyTorch's default."""
    substituted: bool
    """Whether it also replaces other backends that the script names for process groups."""
    timeout_s: float
    trace: Tracing
    outputs: tuple[str, ...] | None
    """Patterns of the files to fetch; empty: all that the run creates; None: none."""
    interactive: int | None
    """The rank that has the terminal."""
    parts: tuple[Part, ...]
    """Parts of features."""
    workers: tuple[WorkerPlan, ...]
    launcher: Launching
    """The program that starts the workers."""
    starters: tuple[Starter, ...]
    """Its processes; empty if the agents start the workers."""
    ranks_planned: bool
    """Whether ranks run where `workers` has them, with their variables; otherwise the starters decide."""

    @property
    def world_size(self) -> int:
        """The number of workers."""
        return self.nnodes * self.nproc_per_node

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data, as in `plan.json` and `--dry-run --json`."""
        return {
            **{name: value for name, value in vars(self).items() if name != "parts"},
            "scenario": self.scenario.name,
            "trace": vars(self.trace),
            "faults": [],
            **{part.name: part.data() for part in self.parts},
            "workers": [worker._asdict() for worker in self.workers],
            "launcher": self.launcher.name,
            "starters": [starter._asdict() for starter in self.starters],
            "script": str(self.scenario.script),
            "world_size": self.world_size,
        }


def make_plan(scenario: Scenario, run: str, cluster: ClusterInfo, options: PlanOptions) -> Plan:
    """Assign ranks, node-major, and give every worker torchrun's variables; the cluster need not exist yet.

    Raises:
        ClusterUnfit: the cluster is too small, or has other limits than the scenario wants.
        UsageError: the size makes no sense, or warm workers do not support a variable.
    """
    refuse_unfit(cluster, scenario, options)
    nnodes, nproc_per_node = options.size_of_run(scenario, cluster.shape)
    world_size = nnodes * nproc_per_node
    if nnodes < 1 or nproc_per_node < 1 or world_size > MAX_WORLD_SIZE:
        sizes = f"found {nnodes:,} x {nproc_per_node:,} ranks; allowed: 1 to {MAX_WORLD_SIZE:,} ranks on all nodes"
        raise UsageError(sizes, "change --nodes or --nproc-per-node")
    parts = _parts(scenario, options, cluster, nnodes, world_size)
    if (last := max(chain(*scenario.expect.by_rank), default=0)) >= world_size:
        expected = f"{scenario.name} has an expectation of rank {last}, but world_size is {world_size}"
        raise UsageError(expected, "raise --nodes or --nproc-per-node, or remove the expectation")
    if options.interactive is not None and options.interactive >= world_size:
        raise UsageError(f"--interactive: there is no rank {options.interactive}; allowed: 0 to {world_size - 1}")
    values = scenario.trace.values if options.trace_values is None else options.trace_values
    if values is not None and not 0 <= values <= MAX_TRACE_VALUES:
        raise UsageError(f"trace_values is {values}; allowed: a whole number from 0 to {MAX_TRACE_VALUES}")
    backend = check_backend(options.backend) if options.backend is not None else scenario.backend
    cold = options.cold or scenario.cold
    if not cold and (reason := next(filter(None, map(warm.explain_refusal, scenario.env)), "")):
        raise UsageError(f"{scenario.name}: {reason}", "add `cold: true` to the scenario or run it with --cold")
    codes = scenario.expect.exit if scenario.expect.verdict == "passed" else {}  # else a code is how a rank failed
    data = {"LAB_DATA": cluster.data} if cluster.shape.data else {}
    split = options.split_gpus or scenario.split_gpus
    # Workers of one machine: with as many threads each as it has cores, they would wait for one another's, up to ten
    # times as long. So each has one, as torchrun says, unless the cluster says otherwise.
    threads = {"OMP_NUM_THREADS": "1"} if world_size > 1 and "OMP_NUM_THREADS" not in cluster.shape.env else {}
    chosen = {name: value for part in parts for name, value in part.env.items()}
    chosen |= groups.backend_variables(backend, instead=options.backend is not None)
    chosen |= {groups.REWRITE_VARIABLE: "1"} if options.rewrite_address or scenario.rewrite_address else {}
    layout = Layout(
        run=run,
        addresses=_addresses(cluster, nnodes),
        nproc_per_node=nproc_per_node,
        port=cluster.master_port,
        env={**threads, "LAB_SHARED": cluster.shared, **data, **chosen, **scenario.env},
        argv=(scenario.script_path, *scenario.args),
        settings=_launching(scenario, options, backend),
    )
    launcher = find_launcher(layout.settings.name)
    refuse_absence(scenario.name, cluster, nnodes, layout.settings, parts)
    if refusal := launcher.refusal(layout):
        raise UsageError(refusal, "change `min_nodes` or `max_nodes` of the launcher, or use --nodes")
    starters = launcher.starters(layout)
    if starters and (braces := next(filter(None, map(_BRACES.search, layout.argv)), None)):
        hint = f"let the script read the environment variable {ARGUMENTS[braces[1]]}"
        raise UsageError(f"{layout.settings.name} passes all ranks the same arguments, not {braces[0]}", hint)
    if starters and options.interactive is not None:
        raise UsageError(f"{layout.settings.name} cannot connect a rank to the terminal", "run it without --launcher")
    return Plan(
        run=run,
        scenario=scenario,
        nnodes=nnodes,
        nproc_per_node=nproc_per_node,
        master_addr=cluster.master_addr,
        master_port=cluster.master_port,
        cold=cold,
        one_user=options.one_user or scenario.one_user or bool(starters),
        fresh=options.fresh,
        output_bytes=options.output_bytes or (STRICT_OUTPUT_BYTES if cluster.shape.strict else OUTPUT_BYTES),
        backend=backend,
        substituted=options.backend is not None,
        timeout_s=scenario.timeout_s if options.timeout_s is None else check_timeout(options.timeout_s),
        trace=Tracing(on=options.trace and scenario.trace.on, values=values),
        outputs=scenario.outputs,
        interactive=options.interactive,
        parts=parts,
        workers=tuple(
            _plan_worker(rank, nnodes, layout, cluster, codes.get(rank, 0), split) for rank in range(world_size)
        ),
        launcher=layout.settings,
        starters=starters,
        ranks_planned=launcher.plans_ranks,
    )


def _launching(scenario: Scenario, options: PlanOptions, backend: str | None) -> Launching:
    """Return the launcher: the requested one, else the scenario's, or the one that the backend needs."""
    name = options.launcher or scenario.launcher.name
    find_launcher(name)
    if (needed := STARTED_BY.get(backend or "", name)) != name:
        if options.launcher or name != LAB:
            raise UsageError(f"only {needed} starts the ranks of {backend}, not {name}", f"use --launcher {needed}")
        name = needed
    return scenario.launcher if name == scenario.launcher.name else Launching(name=name)


def _addresses(cluster: ClusterInfo, nnodes: int) -> tuple[str, ...]:
    """Return the address of each node by node rank: its name if nodes have names in DNS."""
    if (nodes := cluster.nodes[:nnodes]) and cluster.master_addr == nodes[0].address:
        return tuple(node.address for node in nodes)
    return tuple(f"node{rank}" for rank in range(nnodes))


def _parts(
    scenario: Scenario, options: PlanOptions, cluster: ClusterInfo, nnodes: int, world_size: int
) -> tuple[Part, ...]:
    """Return the parts of features; imports no feature if the scenario and the options need none."""
    keys = [*scenario.extra, *(f"expect.{name}" for name in scenario.expect.extra)]
    asked = bool(options.faults or options.network)
    if not (keys or asked):
        return ()
    from lab.feature import load_plan_parts

    made = (make(scenario, options, cluster, nnodes, world_size) for make in load_plan_parts(None if asked else keys))
    return tuple(part for part in made if part is not None)


def _plan_worker(
    rank: int, nnodes: int, layout: Layout, cluster: ClusterInfo, expected_code: int, split: bool
) -> WorkerPlan:
    """Plan a worker with the variables of `torch/distributed/elastic/agent/server/local_elastic_agent.py`."""
    node_rank, local_rank = divmod(rank, layout.nproc_per_node)
    world_size = str(nnodes * layout.nproc_per_node)
    env = {
        **gpu_variables(cluster, layout.nproc_per_node, rank, split=split),
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": str(layout.nproc_per_node),
        "GROUP_RANK": str(node_rank),
        "GROUP_WORLD_SIZE": str(nnodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": world_size,
        "MASTER_ADDR": cluster.master_addr,
        "MASTER_PORT": str(cluster.master_port),
        "TORCHELASTIC_RUN_ID": layout.run,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        groups.STORE_VARIABLE: groups.HOSTED,
        "TORCHELASTIC_ERROR_FILE": "",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        **layout.env,
    }
    argv = tuple(_BRACES.sub(lambda braces: env[ARGUMENTS[braces[1]]], word) for word in layout.argv)
    return WorkerPlan(rank, local_rank, node_rank, f"node{node_rank}", env, argv, expected_code)
