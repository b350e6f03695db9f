"""How large a run is, what cluster is made where there is none, and whether one that is there will do. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lab.errors import ClusterUnfit
from lab.frozen import dataclass
from lab.plan.cluster import ClusterInfo, Shape, field_text, field_word
from lab.spec.load import KEY, merged
from lab.spec.scenario import Resources, Scenario


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """How a scenario is asked to run; None means what the scenario or the cluster says."""

    nodes: int | None = None
    """Nodes that take part."""
    nproc_per_node: int | None = None
    """Workers on each node."""
    cold: bool = False
    """Start fresh interpreters instead of forking the agents."""
    timeout_s: float | None = None
    """Seconds after which the run is hung."""
    trace: bool = True
    """Record the collectives, unless the scenario says not to."""
    output_bytes: int | None = None
    """What each rank may print; the rest is dropped."""
    backend: str | None = None
    """What carries the bytes of all process groups, whatever backend the script names for them."""
    one_user: bool = False
    """Let the ranks of a node be one user, as under torchrun."""
    fresh: bool = False
    """Empty the shared folder before."""
    trace_values: int | None = None
    """Keep at most this many elements of one side of a call as they are; 0: neither them nor summaries."""
    interactive: int | None = None
    """The rank that has the terminal of whoever runs it, from its start to its end."""
    launcher: str | None = None
    """What starts the workers."""
    network: str | Mapping[str, Any] | None = None
    """What the links between nodes are like, as the key `network` says it."""
    faults: Sequence[Any] = ()
    """What is broken on purpose, beside what the scenario says."""

    def size_of_run(self, scenario: Scenario, shape: Shape) -> tuple[int, int]:
        """Nodes of a run, and workers on each, on a cluster of this shape."""
        return (
            self.nodes or scenario.nodes or shape.nodes,
            self.nproc_per_node or scenario.nproc_per_node or shape.nproc_per_node,
        )


_ADDED = ("requirements", "data")
"""Of these a scenario may have its own, and what was asked for is added to them."""


def has_wishes(scenario: Scenario) -> bool:
    """Whether a scenario wants limits, an image, packages or folders that a cluster made for others lacks."""
    wishes = (scenario.volumes, scenario.image, scenario.requirements, scenario.data)
    return scenario.resources != Resources() or any(wishes)


def with_asked(scenario: Scenario, asked: Mapping[str, Any]) -> Scenario:
    """The scenario with the image, packages and data that were asked for: they win over what it says itself.

    Packages and data are added to its own; of the same name, those that were asked for are taken.
    """
    requirements = merged(scenario.requirements, asked.get("requirements") or ())
    return replace(
        scenario,
        image=asked.get("image") or scenario.image,
        extra={**scenario.extra, KEY: requirements} if requirements else scenario.extra,
        data={**scenario.data, **(asked.get("data") or {})},
    )


def shape_for(scenario: Scenario, options: PlanOptions, asked: Mapping[str, Any]) -> Shape:
    """The cluster that is made for one run.

    Args:
        scenario: what runs on it; a size that nobody gives is 1.
        options: how large the run is asked to be.
        asked: fields of the shape that were asked for; they win over what the scenario says.
    """
    nodes, nproc_per_node = options.size_of_run(scenario, Shape(nodes=1))
    whole = with_asked(scenario, asked)
    said = {"nodes": nodes, "nproc_per_node": nproc_per_node, **_said(scenario)}
    volumes = {volume.target: volume for volume in (*scenario.volumes, *asked.get("volumes", ()))}
    added = {"volumes": tuple(volumes.values()), "requirements": whole.requirements, "data": whole.data}
    return Shape(**{**said, **asked, **added})


def shape_for_all(scenarios: Sequence[Scenario], options: PlanOptions, asked: Mapping[str, Any]) -> Shape:
    """The cluster that is made for many runs: as many nodes as the largest needs."""
    nodes = max(options.size_of_run(scenario, Shape(nodes=1))[0] for scenario in scenarios)
    return Shape(**{"nodes": nodes, **asked})


def asked_for_own(scenario: Scenario, asked: Mapping[str, Any], shared: Shape | None) -> dict[str, Any]:
    """What the cluster that one scenario of many gets for itself has besides what the scenario says."""
    shared_too = {name: value for name, value in vars(shared).items() if name not in _ADDED} if shared else {}
    taken = {**shared_too, **asked}
    said = {"nodes", *_said(scenario), *(["nproc_per_node"] if scenario.nproc_per_node else [])}
    return {name: value for name, value in taken.items() if name not in said}


def planned_clusters(
    scenarios: Sequence[Scenario], options: PlanOptions, asked: Mapping[str, Any], there: ClusterInfo | None, name: str
) -> list[ClusterInfo]:
    """The cluster that each of these runs on: the one that is there, or one without nodes yet."""
    if len(scenarios) == 1:
        return [there or not_made(shape_for(scenarios[0], options, asked), name)]
    shared = there or not_made(shape_for_all(scenarios, options, asked), name)
    return [
        not_made(shape_for(scenario, options, asked_for_own(scenario, asked, shared.shape)), own_name(name))
        if has_wishes(scenario)
        else shared
        for scenario in scenarios
    ]


def own_name(name: str) -> str:
    """What the cluster is called that one of many scenarios gets for itself."""
    return f"{name[:36]}-own"


def not_made(shape: Shape, name: str) -> ClusterInfo:
    """A cluster of this shape before it is made."""
    return ClusterInfo(name=name, engine="", shape=shape, nodes=(), owner="")


def _said(scenario: Scenario) -> dict[str, Any]:
    return {name: value for name, value in {**vars(scenario.resources), "image": scenario.image}.items() if value}


def refuse_unfit(cluster: ClusterInfo, scenario: Scenario, options: PlanOptions) -> None:
    """Refuse a scenario that a cluster cannot run as asked.

    Raises:
        ClusterUnfit: the cluster is too small, or has other limits than the scenario wants.
    """
    nodes, _ = options.size_of_run(scenario, cluster.shape)
    if nodes > cluster.shape.nodes:
        raise ClusterUnfit(
            f"{scenario.name} needs {nodes} nodes, cluster {cluster.name} has {cluster.shape.nodes}",
            f"`lab down` and `lab up --nodes {nodes}`, or use another cluster with --name",
        )
    asked = ((name, wish, getattr(cluster.shape, name)) for name, wish in _said(scenario).items())
    differences = [
        f"{field_word(name)} {field_text(name, wish)}, the cluster has {_text_of(name, has)}"
        for name, wish, has in asked
        if wish != has
    ]
    differences += [
        f"data {name}, {folder}, the cluster has {cluster.shape.data.get(name, 'none')}"
        for name, folder in scenario.data.items()
        if cluster.shape.data.get(name) != folder
    ]
    if differences:
        raise ClusterUnfit(
            f"{scenario.name} asks for {'; '.join(differences)}",
            "run it without a cluster (`lab down` first), or use another one with --name",
        )


def _text_of(name: str, has: Any) -> str:
    if has:
        return field_text(name, has)
    return "the lab's own" if name == "image" else "no limit"
