"""What this machine is asked for when a local cluster is made: a folder, and a process that forks an agent a node."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from lab import __version__
from lab.engine.local.layout import CONTROL, DESCRIPTION, LIFE, MARK, PACKAGES_VARIABLE, mark
from lab.engine.protocol import Request
from lab.engine.several_hosts import refuse_for_one_host
from lab.errors import ClusterUnfit
from lab.plan.cluster import Shape


def requests_for(
    home: Path, cluster: str, shape: Shape, *, network: str, run: str | None, packages: str = ""
) -> list[Request]:
    """The folder with its description, and the process that forks agents.

    `network`: the two middle octets of its addresses. `packages`: the virtual environment that workers use, if any.

    Raises:
        ClusterUnfit: processes of this machine cannot be that.
    """
    _refuse_impossible(shape)
    folder = home / cluster
    description = {"shape": shape.to_json(), "network": network, "run": run, "version": __version__}
    site = str(folder / "site")
    start = f"import sys; sys.path.append({site!r}); from labnode.node.zygotes.local import main; main()"
    return [
        Request(what=f"folder {folder}", body={DESCRIPTION: description}),
        Request(
            what=f"process of {shape.nodes} agents",
            body={
                "argv": [
                    sys.executable,
                    "-c",
                    start,
                    str(folder / LIFE),
                    str(folder / CONTROL),
                ],
                "agents": _agents(folder, shape, packages),
                "environment": {
                    "GLOO_SOCKET_IFNAME": "lo",
                    **({PACKAGES_VARIABLE: packages} if packages else {}),
                    **shape.env,
                    MARK: mark(home, cluster),
                },
            },
        ),
    ]


def programs_first(packages: str) -> dict[str, str]:
    """The environment in which the programs of a virtual environment are found."""
    return {"VIRTUAL_ENV": packages, "PATH": f"{packages}/bin:{os.environ.get('PATH', os.defpath)}"}


def _agents(folder: Path, shape: Shape, packages: str) -> list[dict[str, Any]]:
    return [
        {
            "node": node,
            "root": str(folder / node),
            "container": False,
            "import_root": str(folder / "site"),
            "socket": str(folder / f"{node}.sock"),
            "memory_bytes": shape.memory_bytes,
            "disk_bytes": shape.disk_bytes,
            "shared": str(folder / "shared"),
            "packages": packages,
        }
        for node in (f"node{node_rank}" for node_rank in range(shape.nodes))
    ]


def _refuse_impossible(shape: Shape) -> None:
    refuse_for_one_host(shape, "local")
    for volume in shape.volumes:
        if str(volume.source) != volume.target:
            raise ClusterUnfit(
                f"the local engine cannot show {volume.source} at {volume.target}: its nodes see this machine",
                f"use {volume.source} as the target too, or the docker engine",
            )
    if shape.strict:
        raise ClusterUnfit("the local engine cannot be strict: its workers are you", "use --engine docker")
    if shape.image is not None:
        raise ClusterUnfit(
            f"the local engine has no images, so not {shape.image}", "leave the image out, or use --engine docker"
        )
