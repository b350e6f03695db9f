"""What `lab doctor` says of the docker engine: version, image, what the kernel can do to a node's network."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.state import find
from lab.engine.doctor import Check, Wanted
from lab.engine.image.image import DEFAULT_IMAGE, inspect_image
from lab.node.recorder import build

_PROBE = f"""
has() {{ command -v $1 >/dev/null && echo true || echo false; }}
built() {{ ls {build.IMAGE_FOLDER}/*-{build.source_hash()}.so >/dev/null 2>&1 && echo true || echo false; }}
try() {{ tc qdisc add dev lo root "$@" >/dev/null 2>&1 && tc qdisc del dev lo root && echo true || echo false; }}
echo "{{\\"tc\\": $(has tc), \\"recorder\\": $(built)"
echo ", \\"netem\\": $(try netem delay 1ms), \\"tbf\\": $(try tbf rate 1mbit burst 32kbit latency 50ms)}}"
"""
_PROBE_DEADLINE_S = 30
_MIN_API = (1, 40)


def examine(connection: Connection, wanted: Wanted) -> list[Check]:
    """Everything that could keep containers from being nodes."""
    image = wanted.image or DEFAULT_IMAGE
    checks = [_version(connection), _image(connection, image), *_orphans(connection)]
    if wanted.gpus:
        checks.append(_gpus(connection))
    if inspect_image(connection.client, image) is not None:
        checks += _inside(connection, image)
    return checks


def _version(connection: Connection) -> Check:
    version = connection.call(connection.api.version)
    found = f"docker {version['Version']}, API {version['ApiVersion']}, {connection.api.base_url}"
    if tuple(int(part) for part in version["ApiVersion"].split(".")) < _MIN_API:
        return Check(level="failed", what="engine", found=found, fix="install Docker Engine 19.03 or newer")
    return Check(level="ok", what="engine", found=found)


def _image(connection: Connection, image: str) -> Check:
    if inspect_image(connection.client, image) is not None:
        return Check(level="ok", what="image", found=image)
    fix = (
        "`lab up` builds it, or `lab image build`"
        if image == DEFAULT_IMAGE
        else f"`lab up` pulls it, or docker pull {image}"
    )
    return Check(level="warning", what="image", found=f"{image} is not there yet", fix=fix)


def _orphans(connection: Connection) -> list[Check]:
    """Networks and volumes of ours whose cluster has no container."""
    filters = {"label": [f"{label.OWNER}={label.owner()}"]}
    alive = {info.name for info in find(connection, None)}
    networks = connection.call(lambda: connection.api.networks(filters=filters))
    volumes = connection.call(lambda: connection.api.volumes(filters=filters))["Volumes"] or []
    names = {item["Labels"][label.CLUSTER] for item in (*networks, *volumes)} - alive
    return [
        Check(
            level="warning",
            what="leftovers",
            found=f"a network or volume of cluster {name}, which has no node",
            fix=f"lab down --name {name}",
        )
        for name in sorted(names)
    ]


def _gpus(connection: Connection) -> Check:
    runtimes = connection.call(connection.api.info).get("Runtimes", {})
    if "nvidia" in runtimes:
        return Check(level="ok", what="gpus", found="the NVIDIA runtime is installed")
    return Check(level="failed", what="gpus", found="no NVIDIA runtime", fix="install the NVIDIA container toolkit")


def _inside(connection: Connection, image: str) -> list[Check]:
    """What is in the image, and what a container that is allowed to can do to its network, tried out."""
    host_config = connection.api.create_host_config(cap_drop=["ALL"], cap_add=["NET_ADMIN"], network_mode="none")
    probe = connection.call(
        lambda: connection.api.create_container(
            image,
            entrypoint=["/bin/sh", "-c", _PROBE],
            user="0:0",
            host_config=host_config,
            labels={label.OWNER: label.owner(), label.CLUSTER: "doctor"},
        )
    )["Id"]
    try:
        connection.call(lambda: connection.api.start(probe))
        connection.call(lambda: connection.api.wait(probe, timeout=_PROBE_DEADLINE_S))
        can = json.loads(connection.call(lambda: connection.api.logs(probe, stderr=False)) or b"{}")
    finally:
        connection.call(lambda: connection.api.remove_container(probe, force=True, v=True))
    recorder = _recorder(image, built=can.get("recorder", False))
    if not can.get("tc"):
        return [
            recorder,
            Check(
                level="warning",
                what="network emulation",
                found=f"{image} has no tc",
                fix="install iproute2 in the image",
            ),
        ]
    return [recorder, *_emulation(can)]


def _recorder(image: str, *, built: bool) -> Check:
    if built:
        return Check(level="ok", what="recorder", found=f"compiled, in {image}")
    if image == DEFAULT_IMAGE:
        found = f"the one in Python, which is slower: {image} has no compiled one that fits this version of the lab"
        return Check(level="warning", what="recorder", found=found, fix="lab image build, then lab down and lab up")
    return Check(level="ok", what="recorder", found=f"the one in Python; {image} has no compiled one")


def _emulation(can: Mapping[str, bool]) -> list[Check]:
    return [
        Check(level="ok", what=name, found="works in containers")
        if can[name]
        else Check(level="warning", what=name, found=f"this kernel lacks it, so {use} cannot be emulated", fix=fix)
        for name, use, fix in (
            ("netem", "delay and loss", "load the module sch_netem, or use another kernel"),
            ("tbf", "a limited rate", "load the module sch_tbf, or use another kernel"),
        )
    ]
