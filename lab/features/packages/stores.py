"""What makes nodes with packages on each engine: images, or environments over the lab's own Python."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import site
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lab.engine import ownership as label
from lab.engine.docker.connection import Connection
from lab.engine.docker.engine import FIND_PYTHON, NO_TORCH
from lab.engine.docker.image import DEFAULT_IMAGE, ImageInfo, inspect_image
from lab.engine.local.state import ENGINE, PACKAGES_VARIABLE
from lab.engine.packages import ENVIRONMENT, PackageStore, Prepared
from lab.engine.protocol import Announce, Engine, ImageMaker, PythonRunner, capable
from lab.errors import ClusterError, ClusterUnfit, ImageUnfit
from lab.features.image.engine_log import BuildLog
from lab.features.image.make import build_from, ensure_image
from lab.features.packages.pip import PROBE_DEADLINE_S, Target, ask_python, probe_text, run_program
from lab.features.packages.requirements import wheel_path
from lab.features.packages.wheels import check_wheels, fetch_wheels, install_request, library_folder, program_text
from lab.node.recorder.build import cache_folder
from lab.node.remove import remove_tree
from lab.plan.cluster import ClusterInfo
from lab.waiting import wait_until
from lab.words import format_bytes, format_duration, format_limit

if TYPE_CHECKING:
    import docker

OWN = "the lab's own Python"
_MADE = "made.json"
Tell = Callable[[str], None]


def environment_for(requirements: Sequence[str]) -> Path:
    """The folder of the environment with these packages, whether it is there or not."""
    return _folder() / key_of(_below(), requirements)


def ensure_environment(requirements: Sequence[str], tell: Tell, *, again: bool = False) -> Path:
    """The folder of the environment with these packages, which is made if it is not there, or `again`.

    Raises:
        LabError: a requirement contradicts what is there, or cannot be fetched.
    """
    folder = environment_for(requirements)
    if not again and (folder / _MADE).exists():
        return folder
    with making(folder.name, tell) as work:
        if not again and (folder / _MADE).exists():  # made meanwhile
            return folder
        if again and _users(folder):
            raise ClusterError(f"{folder} is in use by a cluster that is up", "`lab down` first")
        target = ask_python(sys.executable, OWN, work)
        wheels = fetch_wheels(target, requirements, work, tell)
        check_wheels(target, wheels, whole_path=False)
        tell(f"packages: installing {len(wheels)} over {OWN}")
        try:
            _remove(folder)
            folder.parent.mkdir(parents=True, exist_ok=True)
            _make(folder, target, wheels, work)
            about = {"base": sys.executable, "requirements": requirements, "added": [path.name for path in wheels]}
            (folder / _MADE).write_text(json.dumps(about))
        except BaseException as error:
            _remove(folder)
            if isinstance(error, OSError):
                raise cannot_write(error) from error
            raise
    return folder


def _make(folder: Path, target: Target, wheels: Sequence[Path], work: Path) -> None:
    request = install_request(target, str(folder), [str(path) for path in wheels], str(library_folder().parent))
    run_program(program_text(), request, work, "installing the packages")


def environments() -> list[Prepared]:
    """Those that are there, by name; one that was made only in part has neither packages nor a base."""
    return [_read(folder) for folder in sorted(_folder().glob("*"))]


def remove_environment(name: str) -> str:
    """Remove an environment; returns why that cannot be, empty if it was done."""
    folder = Path(name)
    if _users(folder):
        return "a cluster uses it"
    with making(folder.name, lambda _: None):
        _remove(folder)
    return ""


def _folder() -> Path:
    return store() / "environments"


def _below() -> str:
    """What an environment is made upon: this Python, and all that it has."""
    names = sorted(name for path in _folders_below() for name in _distributions(path))
    return "\n".join((sys.executable, sys.version, *_folders_below(), *names))


def _distributions(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return []


def _folders_below() -> list[str]:
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return [folder for folder in folders if os.path.isdir(folder)]


def _read(folder: Path) -> Prepared:
    try:
        about = json.loads((folder / _MADE).read_text())
    except (OSError, ValueError):
        about = {"base": "", "requirements": [], "added": []}
    return Prepared(name=str(folder), engine=ENGINE, size_bytes=_size_bytes(folder), **about)


def _size_bytes(folder: Path) -> int:
    files = (os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)
    return sum(os.lstat(path).st_size for path in files)


def _remove(folder: Path) -> None:
    (folder / _MADE).unlink(missing_ok=True)  # what is left after a kill in between is no environment
    if not remove_tree(folder):
        raise ClusterError(f"{folder} cannot be removed", "remove it by hand")


def _users(folder: Path) -> list[int]:
    """The agents whose workers use it."""
    wanted, found = f"{PACKAGES_VARIABLE}={folder}".encode(), []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(int(entry))
        except OSError:
            continue
    return found


_FORMAT = "2"
"""Raised when what is made of the same requirements changes."""
_MAX_WHEEL_BYTES = 4 << 30
"""Of one that is named by its path; the largest of PyTorch's have 1 GB."""
_WAIT_S = 1800.0
_POLL_S = 0.1


def store() -> Path:
    """The folder of this user for what the lab makes once and uses again."""
    return Path(cache_folder()).parent


def key_of(base: str, requirements: Sequence[str]) -> str:
    """The name of what is made of some requirements upon a base; wheels that lie on this machine count by content.

    Raises:
        ClusterUnfit: such a wheel is not there.
    """
    digest = hashlib.sha256("\n".join((_FORMAT, base, *requirements)).encode())
    for one in requirements:
        path = wheel_path(one.partition(" @ ")[2].partition(" ;")[0].strip()) if " @ " in one else None
        if path is not None:
            try:
                _add_file(digest, path)
            except OSError as error:
                raise ClusterUnfit(f"cannot read the wheel {path}: {error.strerror}") from error
    return digest.hexdigest()[:16]


def _add_file(digest: hashlib._Hash, path: str) -> None:
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MAX_WHEEL_BYTES:
            allowed = format_limit(_MAX_WHEEL_BYTES)
            raise ClusterUnfit(f"the wheel {path} has {format_bytes(size)}, and {allowed} are allowed")
        while piece := file.read(1 << 20):
            digest.update(piece)


@contextmanager
def making(key: str, tell: Callable[[str], None]) -> Iterator[Path]:
    """Hold what keeps others from making the same; whoever has made it meanwhile is waited for.

    Yields:
        An empty folder to work in, which is removed at the end, or by the next one who makes anything.

    Raises:
        ClusterError: somebody takes too long, or the folder cannot be written.
    """
    try:
        for folder in (_locks(), _work()):
            folder.mkdir(parents=True, exist_ok=True)
        lock = _open_lock(key)
    except OSError as error:
        raise cannot_write(error) from error
    with lock:
        _await(lock, tell)
        _sweep()
        folder = _work() / key
        remove_tree(folder)
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            remove_tree(folder)


def cannot_write(error: OSError) -> ClusterError:
    """That something cannot be kept."""
    why = f"cannot write {error.filename or store()}: {error.strerror or error}"
    return ClusterError(why, "make room, or set XDG_CACHE_HOME to a folder of yours")


def _locks() -> Path:
    return store() / "locks"


def _work() -> Path:
    return store() / "fetching"


def _await(lock: IO[bytes], tell: Callable[[str], None]) -> None:
    if _take(lock):
        return
    tell("packages: another command is making them ready, waiting for it")
    if not wait_until(lambda: _take(lock), _WAIT_S, _POLL_S):
        raise ClusterError(f"another command has been making these packages ready for {format_duration(_WAIT_S)}")


def _open_lock(key: str) -> IO[bytes]:
    return open(_locks() / key, "ab")


def _take(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep() -> None:
    """Remove what those left who were killed."""
    for folder in _work().iterdir():
        with _open_lock(folder.name) as lock:
            if _take(lock):
                remove_tree(folder)


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
        return _make_images(client, name, base, requirements, folder, tell)


def _make_images(
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


def package_store(engine: Engine) -> PackageStore | None:
    """What makes nodes of an engine with packages; None where nodes are made of neither images nor a Python."""
    if isinstance(engine, ImageMaker):
        return ImagePackages(engine)
    return EnvironmentPackages(engine) if isinstance(engine, PythonRunner) else None


class _Store:
    """What both have in common.

    Args:
        engine: whose nodes get packages.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def target(self, cluster: ClusterInfo) -> Target:
        """The Python of the nodes: what it has, and what packages have to fit."""
        told = capable(self._engine, PythonRunner).ask_python(cluster, probe_text())
        return Target.told(f"cluster {cluster.name}", told)

    def lacking(self, cluster: ClusterInfo, requirements: Sequence[str]) -> tuple[str, ...]:
        """Those of some requirements that the nodes do not meet."""
        target = self.target(cluster)
        return tuple(one for one in requirements if not target.meets(one))


class ImagePackages(_Store):
    """Images upon others."""

    @property
    def _connection(self) -> Connection:
        connection: Connection = capable(self._engine, ImageMaker).image_connection()
        return connection

    def name_of(self, image: str | None, requirements: Sequence[str]) -> str:
        """What the image with the packages is called."""
        base = image or DEFAULT_IMAGE
        there = inspect_image(self._connection.client, base)
        return packaged_name(there, requirements) if there else f"{REPOSITORY} upon {base}, which is not here yet"

    def prepare(
        self, image: str | None, requirements: Sequence[str], *, announce: Announce, again: bool = False
    ) -> str:
        """Make ready the image that nodes with these packages are made of; returns its name."""
        connection = self._connection
        client = connection.client
        base = ensure_image(client, image or DEFAULT_IMAGE, lambda progress: announce(progress.text))
        return connection.call(lambda: ensure_packages(client, base, requirements, announce, again=again)).name

    def prepared(self) -> list[Prepared]:
        """The images with packages, by name."""
        connection = self._connection
        return connection.call(lambda: packaged_images(connection.client, self._engine.name))

    def discard(self, prepared: Prepared) -> str:
        """Remove an image with packages; returns why that cannot be, empty if it was done."""
        connection = self._connection
        return connection.call(lambda: remove_packaged(connection.client, prepared.name))


class EnvironmentPackages(_Store):
    """Virtual environments over the lab's own Python."""

    def name_of(self, image: str | None, requirements: Sequence[str]) -> str:
        """The folder of the environment."""
        return str(environment_for(requirements))

    def prepare(
        self, image: str | None, requirements: Sequence[str], *, announce: Announce, again: bool = False
    ) -> str:
        """Make ready the virtual environment of nodes with these packages; returns its folder."""
        if image is not None:
            raise ClusterUnfit(
                f"the {self._engine.name} engine adds no packages to images, so not to {image}", "leave the image out"
            )
        return str(ensure_environment(requirements, announce, again=again))

    def prepared(self) -> list[Prepared]:
        """The virtual environments, by name."""
        return [replace(one, engine=self._engine.name) for one in environments()]

    def discard(self, prepared: Prepared) -> str:
        """Remove a virtual environment; returns why that cannot be, empty if it was done."""
        return remove_environment(prepared.name)
