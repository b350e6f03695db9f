"""What `lab doctor` says of the docker engine: version, image, what the kernel can do to a node's network."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.image import DEFAULT_IMAGE, inspect_image
from lab.engine.docker.state import nodeless
from lab.engine.doctor import Check, Wanted, gpu_checks, look
from lab.engine.payload import node_files, tar
from lab.errors import LabError
from lab.feature import hook
from lab.node.recorder import build

_FOLDER = "/lab-probe"
_PROBE = f"""
import glob, json, sys
folder = "{_FOLDER}"
sys.path.insert(0, folder)
can = {{"recorder": bool(glob.glob("{build.IMAGE_FOLDER}/*-{build.source_hash()}.so"))}}
"""
"""What is in an image; features have more tried in it."""
_ANY_PYTHON = 'for python in python3 python; do command -v $python >/dev/null && exec $python -c "$0"; done; echo {}'
_PROBE_DEADLINE_S = 30
_GPU_DEADLINE_S = 300
_MIN_API = (1, 40)


def examine(connection: Connection, wanted: Wanted) -> list[Check]:
    """Everything that could keep containers from being nodes."""
    image = wanted.image or DEFAULT_IMAGE
    checks = [_version(connection), _image(connection, image), *_orphans(connection)]
    if wanted.gpus:
        checks += gpu_checks(look(connection.call(connection.api.info).get("Runtimes", {})), wanted.gpus, wanted.nodes)
    if wanted.gpu_test:
        checks += _gpu_test(connection, image)
    if inspect_image(connection.client, image) is not None:
        checks += _inside(connection, image)
    return checks


def _version(connection: Connection) -> Check:
    version = connection.call(connection.api.version)
    found = f"docker {version['Version']}, API {version['ApiVersion']}, {connection.api.base_url}"
    if tuple(int(part) for part in version["ApiVersion"].split(".")) < _MIN_API:
        return Check("failed", "engine", found, "install Docker Engine 19.03 or newer")
    return Check("ok", "engine", found)


def _image(connection: Connection, image: str) -> Check:
    if inspect_image(connection.client, image) is not None:
        return Check("ok", "image", image)
    own = image == DEFAULT_IMAGE
    fix = "`lab up` builds it, or `lab image build`" if own else f"`lab up` pulls it, or docker pull {image}"
    return Check("warning", "image", f"{image} is not there yet", fix)


def _orphans(connection: Connection) -> list[Check]:
    """Networks and volumes of ours whose cluster has no container."""
    return [
        Check(
            "warning",
            "leftovers",
            f"a network or volume of cluster {name}, which has no node",
            f"lab down --name {name}",
        )
        for name in nodeless(connection)
    ]


def _gpu_test(connection: Connection, image: str) -> list[Check]:
    """The self-test in a container that has all GPUs."""
    if inspect_image(connection.client, image) is None:
        return [Check("failed", "gpu test", f"{image} is not there yet", "lab up")]
    from docker.types import DeviceRequest

    test = hook("gpu_test")
    words, variables = test.self_test_command()
    config = connection.api.create_host_config(
        device_requests=[DeviceRequest(count=-1, capabilities=[["gpu"]])], shm_size=1 << 30
    )
    probe = connection.call(
        lambda: connection.api.create_container(
            image,
            entrypoint=["/bin/sh", "-c", 'exec "$(command -v python3 || command -v python)" "$@"', "sh"],
            command=words,
            environment=variables,
            host_config=config,
            labels={label.OWNER: label.owner(), label.CLUSTER: "doctor"},
        )
    )["Id"]
    try:
        connection.call(lambda: connection.api.start(probe))
        code = connection.call(lambda: connection.api.wait(probe, timeout=_GPU_DEADLINE_S))["StatusCode"]
        said = connection.call(lambda: connection.api.logs(probe, stderr=False))
        errors = connection.call(lambda: connection.api.logs(probe, stdout=False))
    except LabError as error:  # the engine has no such device, and says so in words of its own
        mend = "`lab doctor --gpus 1` says what is missing"
        return [Check("failed", "a container with GPUs", error.message, mend)]
    finally:
        connection.call(lambda: connection.api.remove_container(probe, force=True, v=True))
    steps = test.told_steps(said.decode("utf-8", "replace"), code, errors.decode("utf-8", "replace"))
    return [Check("ok", "a container with GPUs", image), *steps]


def _inside(connection: Connection, image: str) -> list[Check]:
    """What is in the image, and what a container that is allowed to can do to its network, tried out."""
    host_config = connection.api.create_host_config(cap_drop=["ALL"], cap_add=["NET_ADMIN"], network_mode="none")
    more = hook("doctor_probe")
    program = f"{_PROBE}{more.PROGRAM if more else ''}print(json.dumps(can))\n"
    probe = connection.call(
        lambda: connection.api.create_container(
            image,
            entrypoint=["/bin/sh", "-c", _ANY_PYTHON, program],
            user="0:0",
            host_config=host_config,
            labels={label.OWNER: label.owner(), label.CLUSTER: "doctor"},
        )
    )["Id"]
    try:
        connection.call(lambda: connection.api.put_archive(probe, "/", _sent(more.sent() if more else {})))
        connection.call(lambda: connection.api.start(probe))
        connection.call(lambda: connection.api.wait(probe, timeout=_PROBE_DEADLINE_S))
        can = json.loads(connection.call(lambda: connection.api.logs(probe, stderr=False)) or b"{}")
    finally:
        connection.call(lambda: connection.api.remove_container(probe, force=True, v=True))
    recorder = _recorder(image, built=can.get("recorder", False))
    return [recorder, *(more.checks(can) if more else ())]


def _sent(more: Mapping[str, bytes]) -> bytes:
    """What the probe needs, as a tar."""
    files = {**node_files(), **more}
    return tar({f"{_FOLDER.strip('/')}/{path}": content for path, content in files.items()})


def _recorder(image: str, *, built: bool) -> Check:
    if built:
        return Check("ok", "recorder", f"compiled, in {image}")
    if image == DEFAULT_IMAGE:
        found = f"the one in Python, which is slower: {image} has no compiled one that fits this version of the lab"
        return Check("warning", "recorder", found, "lab image build, then lab down and lab up")
    return Check("ok", "recorder", f"the one in Python; {image} has no compiled one")
