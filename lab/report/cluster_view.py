"""Format a cluster as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from lab.engine.select import traits_of
from lab.node.contents import LIMIT_BYTES
from lab.plan.cluster import ClusterInfo
from lab.report.style import MANY, Style, group_by_kind, range_text, span_text, table_text
from lab.words import NONE, format_bytes, format_count, format_limit, name_nodes


def cluster_json(info: ClusterInfo) -> dict[str, Any]:
    """Convert a cluster to plain data."""
    data = asdict(info)
    data["state"] = info.state
    del data["gpus"]
    data["limits"] = info.limits._asdict()
    for volume in data["shape"]["volumes"]:
        volume["source"] = str(volume["source"])
    data["shape"]["data"] = {name: str(folder) for name, folder in info.shape.data.items()}
    return data


def node_rows(info: ClusterInfo) -> list[tuple[str, str]]:
    """Return name and address of each node; of many nodes, one row with the span of all."""
    if len(info.nodes) <= MANY:
        return [(node.name, node.address) for node in info.nodes]
    return [(name_nodes(node.name for node in info.nodes), span_text([node.address for node in info.nodes]))]


def cluster_text(
    info: ClusterInfo,
    memory_bytes: Mapping[str, int | None],
    shared_bytes: int | None,
    stored_bytes: int | None,
    busy: Mapping[str, Any] | None,
    style: Style,
    killed: str = "",
) -> str:
    """Format a cluster with its nodes.

    Args:
        info: the cluster.
        memory_bytes: what each node uses, by its name.
        shared_bytes: what the files in its shared folder use; None: unknown.
        stored_bytes: size of the files that its nodes keep for the next runs; None: unknown.
        busy: who uses the cluster now; None: nobody.
        style: how to paint it.
        killed: who used it last, if that process was killed.
    """
    asked = info.shape
    shape = f"{asked.nodes} x {asked.nproc_per_node}"
    shape += f", {asked.cpus:g} cpus" if asked.cpus else ""
    shape += f", {asked.gpus} GPUs" if asked.gpus else ""
    shape += f", {info.limits.describe()}" if any(info.limits) else ""
    now = f"busy with {busy.get('purpose')} (process {busy.get('pid')})" if busy else "idle"
    now += f"; {killed} was killed: its ranks end within a minute, or with the next run" if killed and not busy else ""
    state = style.paint(info.state, {"ready": "green", "partial": "yellow", "dead": "red"}[info.state])
    head = f"{style.paint(info.name, 'bold')}  {info.engine}  {shape}  {state}  {now}"
    if info.run:
        head += f"  made for run {info.run}"
    head += f"\npackages: {', '.join(asked.requirements)}" if asked.requirements else ""
    head += f"\nhosts: {', '.join(asked.hosts)}" if asked.hosts else ""
    head += (
        f"\nshared: {format_bytes(shared_bytes)} in {info.shared}; `lab run --fresh` empties it" if shared_bytes else ""
    )
    head += f"\nkept files: {format_bytes(stored_bytes)} of {format_limit(LIMIT_BYTES)}" if stored_bytes else ""
    head += "".join(f"\ndata: {name} is {folder}" for name, folder in asked.data.items())
    rows = [["node", "state", "address", "memory", "container", "host"]]
    rows += _node_rows(info, memory_bytes)
    is_shown = {"container": traits_of(info.engine).containers, "host": any(node.host for node in info.nodes)}
    shown = [number for number, title in enumerate(rows[0]) if is_shown.get(title, True)]
    rows = [[row[number] for number in shown] for row in rows]
    return f"{head}\n{table_text(rows[0], rows[1:], style)}"


def _node_rows(info: ClusterInfo, memory_bytes: Mapping[str, int | None]) -> Iterator[list[str]]:
    """Yield a row for each node; of many, one row for those with equal state and host."""
    used = {node.name: memory_bytes.get(node.name) or None for node in info.nodes}
    for ours in group_by_kind(info.nodes, lambda one: (one.state, one.host)):
        addresses = span_text([node.address or NONE for node in ours])
        memory = range_text((used[node.name] for node in ours), format_bytes)
        containers = span_text([node.handle[:12] for node in ours])
        yield [name_nodes(n.name for n in ours), ours[0].state, addresses, memory, containers, ours[0].host or NONE]
    if len(info.nodes) > MANY:
        known = [size for size in used.values() if size is not None]
        total = format_bytes(sum(known) if known else None)
        yield [format_count(len(info.nodes), "node"), "", "", f"{total} together", "", ""]
