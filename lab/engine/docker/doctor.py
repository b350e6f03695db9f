"""Checks of `lab doctor` for the docker engine: version, image, and what the kernel can do to a node's network."""

from __future__ import annotations

import json

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.image import DEFAULT_IMAGE, inspect_image
from lab.engine.doctor import Check, Wanted, gpu_checks
from lab.engine.payload import make_tar, node_files
from lab.feature import find_hook
from lab.node.recorder import build

_FOLDER = "/lab-probe"
_PROBE = f"""
import glob, json, sys
folder = "{_FOLDER}"
sys.path.insert(0, folder)
can = {{"recorder": bool(glob.glob("{build.IMAGE_FOLDER}/*-{build.source_hash()}.so"))}}
"""
"""Checks the content of an image; features add other checks."""
_ANY_PYTHON = 'for python in python3 python; do command -v $python >/dev/null && exec $python -c "$0"; done; echo {}'
_MIN_API = (1, 40)


def examine_engine(connection: Connection, wanted: Wanted) -> list[Check]:
    """Check everything that could keep containers from working as nodes."""
    image = wanted.image or DEFAULT_IMAGE
    checks = [_version(connection), _image(connection, image), *gpu_checks(wanted, connection, image)]
    if inspect_image(connection, image) is not None:
        checks += _inside(connection, image)
    return checks


def _version(connection: Connection) -> Check:
    version = connection.ask("GET", "/version")
    result = f"docker {version['Version']}, API {version['ApiVersion']}, {connection.api.base_url}"
    is_old = tuple(int(part) for part in version["ApiVersion"].split(".")) < _MIN_API
    return Check.judge("engine", result, is_old, "install Docker Engine 19.03 or newer", "failed")


def _image(connection: Connection, image: str) -> Check:
    if inspect_image(connection, image) is not None:
        return Check("ok", "image", image)
    own = image == DEFAULT_IMAGE
    fix = "`lab up` builds it, or `lab image build`" if own else f"`lab up` pulls it, or docker pull {image}"
    return Check("warning", "image", f"the engine does not have {image} yet", fix)


def _inside(connection: Connection, image: str) -> list[Check]:
    """Check the content of the image, and what a privileged container can do to its network."""
    extra_probe = find_hook("doctor_probe")
    program = f"{_PROBE}{extra_probe.PROGRAM if extra_probe else ''}print(json.dumps(can))\n"
    body = {
        "Image": image,
        "Entrypoint": ["/bin/sh", "-c", _ANY_PYTHON, program],
        "User": "0:0",
        "Labels": {label.OWNER: label.current_owner(), label.CLUSTER: "doctor"},
        "HostConfig": {"CapDrop": ["ALL"], "CapAdd": ["NET_ADMIN"], "NetworkMode": "none"},
    }
    archive = make_tar({f"{_FOLDER.strip('/')}/{path}": content for path, content in node_files().items()})
    code, output, errors = connection.run_container(body, archive)
    if code != 0:
        why = (errors.strip().splitlines() or ["it printed no error"])[-1]
        return [Check("warning", "content", f"the check of what is in {image} failed: {why}", "report this error")]
    can = json.loads(output or "{}")
    return [_recorder(image, built=can.get("recorder", False)), *(extra_probe.link_checks(can) if extra_probe else ())]


def _recorder(image: str, *, built: bool) -> Check:
    if built:
        return Check("ok", "recorder", f"compiled, in {image}")
    if image == DEFAULT_IMAGE:
        result = f"the slower one in Python: {image} has no compiled recorder for this version of the lab"
        return Check("warning", "recorder", result, "lab image build, then lab down and lab up")
    return Check("ok", "recorder", f"in Python; {image} has no compiled recorder")
