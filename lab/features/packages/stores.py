"""Prepare packages for nodes of each engine: images, or environments over the lab's own Python.

The name of both is a hash of their ingredients, so each is built once; a lock keeps two commands from building the
same one. Labels of an image list its ingredients. An environment is in this user's cache; without `made.json` it is
incomplete, and is built again.
"""

from __future__ import annotations

import hashlib
import json
import os
import site
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lab.engine import ownership as label
from lab.engine.agent_holder import read_description
from lab.engine.docker.connection import Refused
from lab.engine.docker.engine import FIND_PYTHON, NO_TORCH, DockerEngine
from lab.engine.docker.image import DEFAULT_IMAGE, ImageInfo, ensure_image, inspect_image
from lab.engine.packages import ENVIRONMENT, PackageStore, Prepared
from lab.engine.protocol import Announce, Engine, PythonRunner, require_capability
from lab.errors import ClusterError, ClusterUnfit, ImageUnfit
from lab.features.copy.archive import pack_files
from lab.features.image.make import build_from
from lab.features.packages import install_program, wheels
from lab.features.packages.requirements import wheel_path
from lab.node.files import remove_tree
from lab.node.recorder.build import cache_folder
from lab.plan.cluster import ClusterInfo
from lab.polling import poll_until
from lab.run.lock import try_lock
from lab.words import format_bytes, format_duration, format_limit

REPOSITORY = "lab-packages"
PACKAGES_LABEL = "lab.image.packages"
"""The requirements, as a JSON list."""
ADDED_LABEL = "lab.image.packages.added"
"""The wheels that were added, as a JSON list."""
BASE_LABEL = "lab.image.base"
"""The name of the base image."""
OWNER_LABEL = "lab.image.owner"
"""Another label than that of clusters: containers inherit the labels of their image."""
_STAGE = "/tmp/lab-packages"
"""The folder of the wheels while an image is built; the image does not contain it."""
_NOBODY = 65534
"""The user who installs wheels."""
_OWN = "the lab's own Python"
_MADE = "made.json"
_IN_USE = 409
"""The engine's answer if an image cannot be removed."""


def package_store(engine: Engine) -> PackageStore | None:
    """Return the package store of an engine; None if its nodes use neither images nor a Python."""
    if isinstance(engine, DockerEngine):
        return ImagePackages(engine)
    return EnvironmentPackages(engine) if isinstance(engine, PythonRunner) else None


class _Store(PackageStore):
    """Common parts of both stores.

    Args:
        engine: The engine whose nodes get packages.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def is_made(self, name: str) -> bool:
        """Return whether the image or environment of this name is complete."""
        raise NotImplementedError

    def make(self, name: str, image: str, requirements: Sequence[str], work: Path, announce: Announce) -> None:
        """Build it, in a temporary folder."""
        raise NotImplementedError

    def prepare(self, image: str | None, packages: Sequence[str], *, announce: Announce, again: bool = False) -> str:
        """Prepare the image or environment of nodes with these packages; other commands that want the same one wait."""
        name = self.name_of(image, packages)
        if again or not self.is_made(name):
            with lock_preparation(name, announce) as work:
                if again or not self.is_made(name):  # another command may have built it by now
                    self.make(name, image or DEFAULT_IMAGE, packages, work, announce)
        return name

    def find_missing(self, cluster: ClusterInfo, requirements: Sequence[str]) -> tuple[str, ...]:
        """Return the requirements that the nodes do not meet."""
        reply = require_capability(self._engine, PythonRunner).ask_python(cluster, wheels.probe_text())
        target = wheels.Target.parse(f"cluster {cluster.name}", reply)
        return tuple(one for one in requirements if not target.meets(one))


class ImagePackages(_Store):
    """Images that extend others with missing wheels, fetched on this machine."""

    def __init__(self, engine: DockerEngine) -> None:
        super().__init__(engine)
        self._connection = engine.connection

    def name_of(self, image: str | None, requirements: Sequence[str]) -> str:
        """Return the name of the image with the packages."""
        if (base := inspect_image(self._connection, image or DEFAULT_IMAGE)) is None:
            return f"{REPOSITORY} based on {image or DEFAULT_IMAGE}, which does not exist yet"
        return f"{REPOSITORY}:{key_of(base.id, requirements)}"

    def prepare(self, image: str | None, packages: Sequence[str], *, announce: Announce, again: bool = False) -> str:
        """Prepare the image of nodes with these packages; return its name."""
        ensure_image(self._connection, image or DEFAULT_IMAGE, announce)
        return super().prepare(image, packages, announce=announce, again=again)

    def is_made(self, name: str) -> bool:
        """Return whether the engine has this image."""
        return inspect_image(self._connection, name) is not None

    def make(self, name: str, image: str, requirements: Sequence[str], work: Path, announce: Announce) -> None:
        """Build the image on top of the other."""
        base = ensure_image(self._connection, image, announce)
        target = self._examine(base.name)
        fetched = wheels.fetch_wheels(target, requirements, work, announce)
        wheels.check_wheels(target, fetched, whole_path=True)
        announce(f"packages: adding {len(fetched)} to the image {base.name}")
        labels = {
            PACKAGES_LABEL: json.dumps(list(requirements)),
            ADDED_LABEL: json.dumps([path.name for path in fetched]),
            BASE_LABEL: base.name,
            OWNER_LABEL: label.current_owner(),
        }
        context = _build_context(work, base, target, fetched)
        build_from(self._connection, name, context, lambda _: None, labels=labels, network_mode="none")

    def _examine(self, image: str) -> wheels.Target:
        """Return the Python of an image that has torch.

        Raises:
            ImageUnfit: It has none.
        """
        body = {
            "Image": image,
            "Entrypoint": ["/bin/sh", "-c", FIND_PYTHON],
            "Cmd": [wheels.probe_text()],
            "User": "0:0",
            "Labels": {label.OWNER: label.current_owner(), label.CLUSTER: "image"},
            "HostConfig": {"NetworkMode": "none", "CapDrop": ["ALL"], "LogConfig": {"Type": "json-file"}},
        }
        code, reply, _ = self._connection.run_container(body, deadline_s=wheels.PROBE_DEADLINE_S)
        if code == NO_TORCH:
            raise ImageUnfit(f"image {image} has no Python that can import torch", "use an image with torch installed")
        return wheels.Target.parse(f"image {image}", reply)

    def prepared(self) -> list[Prepared]:
        """Return this owner's images with packages, by name."""
        filters = {"label": [PACKAGES_LABEL, f"{OWNER_LABEL}={label.current_owner()}"]}
        return sorted(
            Prepared(
                name=name,
                engine=self._engine.name,
                base=labels.get(BASE_LABEL, ""),
                requirements=json.loads(labels.get(PACKAGES_LABEL, "[]")),
                added=json.loads(labels.get(ADDED_LABEL, "[]")),
                size_bytes=image["Size"],
            )
            for image in self._connection.listed("images/json", filters)
            for labels in [image.get("Labels") or {}]
            for name in image.get("RepoTags") or ()
            if name.startswith(f"{REPOSITORY}:")
        )

    def discard(self, prepared: Prepared) -> str:
        """Remove an image with packages; return why this is impossible, empty if it was removed."""
        try:
            self._connection.request_existing("DELETE", f"/images/{prepared.name}")
        except Refused as refused:
            if refused.status != _IN_USE:
                raise
            return "a container uses it"
        return ""


def _build_context(folder: Path, base: ImageInfo, target: wheels.Target, fetched: Sequence[Path]) -> Iterator[bytes]:
    """Return the build context as a tar of files that belong to root and nobody else may change.

    The wheels are installed in their own stage, by an unprivileged user; the image gets only the environment.
    """
    request = wheels.install_request(target, ENVIRONMENT, [f"{_STAGE}/wheels/{path.name}" for path in fetched], _STAGE)
    dockerfile, library = folder / "Dockerfile", wheels.library_folder()
    dockerfile.write_text(f"""\
FROM {base.id} AS packages
USER root
COPY packages/ {_STAGE}/
COPY --chown={_NOBODY}:{_NOBODY} environment/ {ENVIRONMENT}/
USER {_NOBODY}:{_NOBODY}
RUN {json.dumps([target.executable, "-I", f"{_STAGE}/install.py", request])}
FROM {base.id}
USER root
COPY --from=packages --chown=0:0 {ENVIRONMENT}/ {ENVIRONMENT}/
""")
    files = {"Dockerfile": dockerfile, "environment": folder, "packages/install.py": Path(install_program.__file__)}
    files |= {f"packages/wheels/{path.name}": path for path in fetched}
    files |= {f"packages/{library.name}/{path.relative_to(library)}": path for path in library.rglob("*.py")}
    return pack_files(files)


class EnvironmentPackages(_Store):
    """Virtual environments over the lab's own Python, whose torch they see."""

    def name_of(self, image: str | None, requirements: Sequence[str]) -> str:
        """Return the folder of the environment, whether it exists or not."""
        if image is not None:
            why = f"the {self._engine.name} engine cannot add packages to the image {image}"
            raise ClusterUnfit(why, "leave the image out")
        folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
        folders = [folder for folder in folders if os.path.isdir(folder)]
        names = sorted(name for folder in folders for name in os.listdir(folder))
        distributions = [name for name in names if name.endswith((".dist-info", ".egg-info"))]
        below = "\n".join((sys.executable, sys.version, *folders, *distributions))
        return str(_environments() / key_of(below, requirements))

    def is_made(self, name: str) -> bool:
        """Return whether this environment is complete."""
        return Path(name, _MADE).exists()

    def make(self, name: str, image: str, requirements: Sequence[str], work: Path, announce: Announce) -> None:
        """Install it over the lab's own Python."""
        folder = Path(name)
        if self.is_made(name) and _is_used(folder):
            raise ClusterError(f"a running cluster uses {folder}", "run `lab down` first")
        target = wheels.ask_python(_OWN, work)
        fetched = wheels.fetch_wheels(target, requirements, work, announce)
        wheels.check_wheels(target, fetched, whole_path=False)
        announce(f"packages: installing {len(fetched)} over {_OWN}" if fetched else f"packages: {_OWN} has all of them")
        about = {"base": sys.executable, "requirements": requirements, "added": [path.name for path in fetched]}
        try:
            _remove(folder)
            folder.parent.mkdir(parents=True, exist_ok=True)
            wheels.install_wheels(target, folder, fetched, work)
            (folder / _MADE).write_text(json.dumps(about))
        except OSError as error:
            _remove(folder)
            raise _cannot_write(error) from error
        except BaseException:
            _remove(folder)
            raise

    def prepared(self) -> list[Prepared]:
        """Return the environments, by name; an incomplete one has neither packages nor a base."""
        environments = []
        for folder in sorted(_environments().glob("*")):
            about: dict[str, Any] = {"base": "", "requirements": [], "added": []}
            with suppress(OSError, ValueError):
                about = json.loads((folder / _MADE).read_text())
            files = (os.path.join(top, name) for top, _, names in os.walk(folder) for name in names)
            size_bytes = sum(os.lstat(path).st_size for path in files)
            environments.append(Prepared(name=str(folder), engine=self._engine.name, size_bytes=size_bytes, **about))
        return environments

    def discard(self, prepared: Prepared) -> str:
        """Remove a virtual environment; return why this is impossible, empty if it was removed."""
        folder = Path(prepared.name)
        if _is_used(folder):
            return "a cluster uses it"
        with lock_preparation(prepared.name, lambda _: None):
            _remove(folder)
        return ""


def _environments() -> Path:
    return store_folder() / "environments"


def _remove(folder: Path) -> None:
    (folder / _MADE).unlink(missing_ok=True)  # if this is killed after it, the rest is no environment
    if not remove_tree(folder):
        raise ClusterError(f"cannot remove {folder}", "remove it manually")


def _is_used(folder: Path) -> bool:
    """Return whether a running local cluster was created with an environment."""
    return any(read_description(cluster).get("packages") == str(folder) for cluster in label.local_home().glob("*"))


# -- reusable images and environments

_FORMAT = "2"
"""Raised when the same requirements produce something else."""
_MAX_WHEEL_BYTES = 4 << 30
"""Of one wheel named by its path; PyTorch's largest ones have 1 GB."""
_WAIT_S = 1800.0
_POLL_S = 0.1


def store_folder() -> Path:
    """Return this user's cache folder of the lab."""
    return Path(cache_folder()).parent


def key_of(base: str, requirements: Sequence[str]) -> str:
    """Return the key of requirements on top of a base; wheels on this machine count by content.

    Raises:
        ClusterUnfit: Such a wheel does not exist.
    """
    digest = hashlib.sha256("\n".join((_FORMAT, base, *requirements)).encode())
    addresses = [one.partition(" @ ")[2].partition(" ;")[0].strip() for one in requirements]
    for path in filter(None, map(wheel_path, addresses)):
        reading = ClusterUnfit.on_os_error(f"cannot read the wheel {path}", "name a readable wheel")
        with reading, open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _MAX_WHEEL_BYTES:
                allowed = format_limit(_MAX_WHEEL_BYTES)
                raise ClusterUnfit(f"the wheel {path} has {format_bytes(size)}; allowed: {allowed}")
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()[:16]


@contextmanager
def lock_preparation(name: str, announce: Announce) -> Iterator[Path]:
    """Lock the preparation of this name; wait for another command that prepares it.

    Yields:
        An empty folder to work in, which is removed at the end, or by the next preparation.

    Raises:
        ClusterError: The other command takes too long, or the folder cannot be written.
    """
    key, locks, work = Path(name).name.replace(":", "-"), store_folder() / "locks", store_folder() / "fetching"
    try:
        locks.mkdir(parents=True, exist_ok=True)
        work.mkdir(exist_ok=True)
        lock = (locks / key).open("ab")
    except OSError as error:
        raise _cannot_write(error) from error
    with lock:
        if not try_lock(lock):
            announce("packages: waiting for another command, which prepares the same ones")
            if not poll_until(lambda: try_lock(lock), _WAIT_S, _POLL_S):
                waited = format_duration(_WAIT_S)
                raise ClusterError(f"another command has prepared these packages for {waited}", "wait, or stop it")
        for left in work.iterdir():  # of commands that were killed
            with (locks / left.name).open("ab") as other:
                if left.name == key or try_lock(other):
                    remove_tree(left)
        folder = work / key
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            remove_tree(folder)


def _cannot_write(error: OSError) -> ClusterError:
    why = f"cannot write {error.filename or store_folder()}: {error.strerror or error}"
    return ClusterError(why, "free disk space, or set XDG_CACHE_HOME to another folder")
