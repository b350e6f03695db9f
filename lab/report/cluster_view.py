"""A cluster for a person and for a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from lab.plan.cluster import ClusterInfo
from lab.report.style import Style
from lab.report.table import table_text
from lab.words import NONE, format_bytes


def cluster_json(info: ClusterInfo) -> dict[str, Any]:
    """A cluster as plain data."""
    data = asdict(info)
    data["state"] = info.state
    data["limits"] = info.limits._asdict()
    for volume in data["shape"]["volumes"]:
        volume["source"] = str(volume["source"])
    data["shape"]["data"] = {name: str(folder) for name, folder in info.shape.data.items()}
    return data


def cluster_text(
    info: ClusterInfo, memory_bytes: Mapping[str, int | None], busy: Mapping[str, Any] | None, style: Style
) -> str:
    """A cluster with its nodes.

    Args:
        info: the cluster.
        memory_bytes: what each node uses, by its name.
        busy: who uses the cluster now; None: nobody.
        style: how to paint it.
    """
    asked = info.shape
    shape = f"{asked.nodes} x {asked.nproc_per_node}"
    shape += f", {asked.cpus:g} cpus" if asked.cpus else ""
    shape += f", {asked.gpus} GPUs" if asked.gpus else ""
    shape += f", {info.limits.told()}" if any(info.limits) else ""
    now = f"busy with {busy.get('purpose')} (process {busy.get('pid')})" if busy else "idle"
    state = style.paint(info.state, {"ready": "green", "partial": "yellow", "dead": "red"}[info.state])
    head = f"{style.paint(info.name, 'bold')}  {info.engine}  {shape}  {state}  {now}"
    if info.run:
        head += f"  made for run {info.run}"
    head += f"\npackages: {', '.join(asked.requirements)}" if asked.requirements else ""
    head += f"\nhosts: {', '.join(asked.hosts)}" if asked.hosts else ""
    head += "".join(f"\ndata: {name} is {folder}" for name, folder in asked.data.items())
    rows = [["node", "state", "address", "memory", "container", "host"]]
    for node in info.nodes:
        used = format_bytes(memory_bytes.get(node.name) or None)
        rows.append([node.name, node.state, node.address or NONE, used, node.handle[:12], node.host or NONE])
    if not any(node.host for node in info.nodes):
        rows = [row[:5] for row in rows]
    if info.engine == "local":
        rows = [row[:4] for row in rows]
    return f"{head}\n{table_text(rows[0], rows[1:], style)}"
