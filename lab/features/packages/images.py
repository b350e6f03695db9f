"""Images with packages: another image, and upon it the wheels that were missing there, fetched on this machine.

Such an image is named after what it is made of, so that it is made once; its labels tell what that was.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lab.engine import ownership as label
from lab.engine.docker.engine import FIND_PYTHON, NO_TORCH
from lab.engine.docker.image import ImageInfo, inspect_image
from lab.engine.packages import ENVIRONMENT, Prepared
from lab.errors import ImageUnfit
from lab.features.image.engine_log import BuildLog
from lab.features.image.make import build_from
from lab.features.packages.environments import key_of, making
from lab.features.packages.target import PROBE_DEADLINE_S, Target, probe_text
from lab.features.packages.wheels import check_wheels, fetch_wheels, install_request, library_folder, program_text

if TYPE_CHECKING:
    import docker

REPOSITORY = "lab-packages"
PACKAGES_LABEL = "lab.image.packages"
"""What was asked for, as a JSON list."""
ADDED_LABEL = "lab.image.packages.added"
"""The wheels that were added, as a JSON list."""
BASE_LABEL = "lab.image.base"
"""The name of the image below."""
OWNER_LABEL = "lab.image.owner"
"""Not that of clusters: containers have the labels of their image too."""
_STAGE = "/tmp/lab-packages"
"""Where the build of an image has the wheels; nothing of it is in the image."""
_NOBODY = 65534
"""The user who installs wheels."""
_PIECE_BYTES = 1 << 20
Tell = Callable[[str], None]


def packaged_name(base: ImageInfo, requirements: Sequence[str]) -> str:
    """The name of an image with packages."""
    return f"{REPOSITORY}:{key_of(base.id, requirements)}"


def ensure_packages(
    client: docker.DockerClient, base: ImageInfo, requirements: Sequence[str], tell: Tell, *, again: bool = False
) -> ImageInfo:
    """The image with packages; made if the engine lacks it, or `again`.

    Raises:
        LabError: a requirement contradicts what the image has, or cannot be fetched; nothing is left then.
    """
    name = packaged_name(base, requirements)
    if not again and (found := inspect_image(client, name)):
        return found
    with making(name.replace(":", "-"), tell) as folder:
        if not again and (found := inspect_image(client, name)):  # made meanwhile
            return found
        return _make(client, name, base, requirements, folder, tell)


def _make(
    client: docker.DockerClient, name: str, base: ImageInfo, requirements: Sequence[str], folder: Path, tell: Tell
) -> ImageInfo:
    target = look_into(client, base.name)
    wheels = fetch_wheels(target, requirements, folder, tell)
    check_wheels(target, wheels, whole_path=True)
    tell(f"packages: adding {len(wheels)} to the image {base.name}")
    with tempfile.TemporaryFile(dir=folder) as archive:
        _write_context(archive, _dockerfile(base, target, wheels), wheels)
        archive.seek(0)
        labels = {
            PACKAGES_LABEL: json.dumps(list(requirements)),
            ADDED_LABEL: json.dumps([path.name for path in wheels]),
            BASE_LABEL: base.name,
            OWNER_LABEL: label.owner(),
        }
        request: dict[str, Any] = {"labels": labels, "network_mode": "none"}
        return build_from(client, name, lambda _: _pieces(archive), BuildLog(), lambda _: None, **request)


def look_into(client: docker.DockerClient, image: str) -> Target:
    """The Python of an image that has torch.

    Raises:
        ImageUnfit: it has none.
    """
    from docker.types import LogConfig

    api = client.api
    log = LogConfig(type="json-file")
    container = api.create_container(
        image,
        entrypoint=["/bin/sh", "-c", FIND_PYTHON],
        command=[probe_text()],
        user="0:0",
        host_config=api.create_host_config(network_mode="none", cap_drop=["ALL"], log_config=log),
        labels={label.OWNER: label.owner(), label.CLUSTER: "image"},
    )["Id"]
    try:
        api.start(container)
        code = api.wait(container, timeout=PROBE_DEADLINE_S)["StatusCode"]
        told = api.logs(container, stderr=False).decode("utf-8", "replace")
    finally:
        api.remove_container(container, force=True, v=True)
    if code == NO_TORCH:
        raise ImageUnfit(f"image {image} has no Python that can import torch", "use an image with torch installed")
    return Target.told(f"image {image}", told)


def _dockerfile(base: ImageInfo, target: Target, wheels: Sequence[Path]) -> str:
    """Install the wheels in a stage of its own, as a user without rights; the image gets the environment alone."""
    request = install_request(target, ENVIRONMENT, [f"{_STAGE}/wheels/{path.name}" for path in wheels], _STAGE)
    install = [target.executable, "-I", f"{_STAGE}/install.py", request]
    lines = [
        f"FROM {base.id} AS packages",
        "USER root",
        f"COPY packages/ {_STAGE}/",
        f"COPY --chown={_NOBODY}:{_NOBODY} environment/ {ENVIRONMENT}/",
        f"USER {_NOBODY}:{_NOBODY}",
        f"RUN {json.dumps(install)}",
        f"FROM {base.id}",
        "USER root",
        f"COPY --from=packages --chown=0:0 {ENVIRONMENT}/ {ENVIRONMENT}/",
    ]
    return "\n".join(lines) + "\n"


def _write_context(archive: IO[bytes], dockerfile: str, wheels: Sequence[Path]) -> None:
    """Everything belongs to root, and nobody else may change it, whatever this machine thinks of modes."""

    def as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry if entry.isdir() or entry.name.endswith((".py", ".whl")) else None

    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, text in (("Dockerfile", dockerfile), ("packages/install.py", program_text())):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
        empty = tarfile.TarInfo("environment")
        empty.type, empty.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(empty)
        library = library_folder()
        tar.add(library, f"packages/{library.name}", filter=as_root)
        for path in wheels:
            tar.add(path, f"packages/wheels/{path.name}", filter=as_root)


def _pieces(archive: IO[bytes]) -> Iterator[bytes]:
    while piece := archive.read(_PIECE_BYTES):
        yield piece


def packaged_images(client: docker.DockerClient, engine: str) -> list[Prepared]:
    """The images with packages that this owner has, by name."""
    filters = {"label": [PACKAGES_LABEL, f"{OWNER_LABEL}={label.owner()}"]}
    found = []
    for image in client.api.images(filters=filters):
        labels = image.get("Labels") or {}
        for name in image.get("RepoTags") or ():
            if name.startswith(f"{REPOSITORY}:"):
                asked, added = (json.loads(labels.get(one, "[]")) for one in (PACKAGES_LABEL, ADDED_LABEL))
                found.append(
                    Prepared(
                        name=name,
                        engine=engine,
                        base=labels.get(BASE_LABEL, ""),
                        requirements=asked,
                        added=added,
                        size_bytes=image["Size"],
                    )
                )
    return sorted(found)


def remove_packaged(client: docker.DockerClient, name: str) -> str:
    """Remove an image; returns why that cannot be, empty if it was done."""
    from docker.errors import APIError, ImageNotFound

    try:
        client.api.remove_image(name)
    except ImageNotFound:
        return ""
    except APIError as error:
        if error.status_code == 409:
            return "a container uses it"
        raise
    return ""
