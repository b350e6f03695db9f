"""Making a cluster of containers."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.engine import ownership as label
from lab.engine.docker import boot
from lab.engine.docker.channel import DockerChannel
from lab.engine.docker.connection import Connection
from lab.engine.docker.state import find, node_state
from lab.engine.payload import node_archive
from lab.engine.protocol import Announce, Channel
from lab.engine.ready import HELLO, wait_ready
from lab.errors import ClusterError, ImageError, LabError
from lab.plan.cluster import ClusterInfo, Node, Shape
from lab.words import plural

_AGENT_ROOT = "/var/lab"
_SHM_BYTES = 1 << 30
_CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "NET_ADMIN", "SETGID", "SETPCAP", "SETUID"]
_READY_TIMEOUT_S = 180.0
_BOOT = Path(boot.__file__).read_text(encoding="utf-8")
_START = (
    'for python in python3 python; do command -v $python >/dev/null && exec $python -c "$0" "$0" "$1"; done; '
    f"echo 'there is no python on PATH' >&2; exit {boot.NO_TORCH}"
)


def create(
    connection: Connection, cluster: str, shape: Shape, image: str, labels: dict[str, str], announce: Announce
) -> ClusterInfo:
    """Make network, volume and containers, and wait until every agent has imported torch.

    Raises:
        LabError: a node did not start; what was made is still there.
    """
    network = f"lab-{cluster}"
    connection.call(
        lambda: connection.api.create_network(network, driver="bridge", labels=labels, check_duplicate=True)
    )
    connection.call(lambda: connection.api.create_volume(f"{network}-shared", labels=labels))
    announce(f"starting {plural(shape.nodes, 'node')} of image {image}")
    channels = connection.together(
        lambda node_rank: _start_node(connection, cluster, network, node_rank, shape, image, labels), range(shape.nodes)
    )
    try:
        announce("importing torch on every node")
        lost = wait_ready(channels, _READY_TIMEOUT_S, announce)
    finally:
        for channel in channels:
            channel.close()
    if lost is not None:
        raise _explain_lost(connection, lost.channel, image)
    return find(connection, cluster)[0]


def _start_node(
    connection: Connection, cluster: str, network: str, node_rank: int, shape: Shape, image: str, labels: dict[str, str]
) -> DockerChannel:
    import docker.types

    name, archive = f"node{node_rank}", node_archive()
    config = {
        "node": name,
        "root": _AGENT_ROOT,
        "container": True,
        "import_root": boot.IMPORT_ROOT,
        "socket": None,
    }
    binds = [f"lab-{cluster}-shared:/shared"]
    binds += [f"{v.source}:{v.target}{':ro' if v.read_only else ''}" for v in shape.volumes]
    gpus = [docker.types.DeviceRequest(count=shape.gpus, capabilities=[["gpu"]])] if shape.gpus else None
    host_config = connection.api.create_host_config(
        binds=binds,
        cap_drop=["ALL"],
        cap_add=_CAPABILITIES,
        device_requests=gpus,
        init=True,
        log_config=docker.types.LogConfig(type="none"),
        mem_limit=shape.memory_bytes,
        memswap_limit=shape.memory_bytes,
        nano_cpus=int(shape.cpus * 1e9) if shape.cpus else None,
        network_mode=network,
        security_opt=["no-new-privileges"],
        shm_size=min(_SHM_BYTES, shape.memory_bytes or _SHM_BYTES),
    )
    endpoints: Any = {network: connection.api.create_endpoint_config(aliases=[name])}
    created = connection.call(
        lambda: connection.api.create_container(
            image,
            entrypoint=["/bin/sh", "-c", _START],
            command=[_BOOT, json.dumps(config)],
            name=f"lab-{cluster}-{name}",
            hostname=name,
            user="0:0",
            working_dir="/",
            stdin_open=True,
            detach=True,  # else docker-py has the engine close standard input when the first client goes
            environment=dict(shape.env),
            labels={**labels, label.NODE: name},
            host_config=host_config,
            networking_config=connection.api.create_networking_config(endpoints),
        )
    )
    node = Node(name=name, node_rank=node_rank, handle=created["Id"], address="")
    channel = DockerChannel(node, connection.attach(node.handle))
    connection.call(lambda: connection.api.start(node.handle))
    with suppress(OSError):  # it has ended already: whoever waits for it finds out why
        channel.send(b"%10d" % len(archive) + archive + HELLO)
    return channel


def _explain_lost(connection: Connection, channel: Channel, image: str) -> LabError:
    state = node_state(connection, channel.node)
    said = getattr(channel, "complaints", b"").decode("utf-8", "replace").strip().splitlines()
    last = f": {said[-1]}" if said else ""
    if state.exit_code == boot.NO_TORCH:
        return ImageError(f"image {image} holds no Python that can import torch", "use an image with torch installed")
    hint = "raise --memory" if state.out_of_memory or state.exit_code == 137 else "`lab doctor` may know more"
    return ClusterError(f"{channel.node.name} {state.sentence()} while it was starting{last}", hint)
