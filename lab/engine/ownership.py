"""Names and labels of clusters, and where engines keep their state."""

from __future__ import annotations

import getpass
import os
import re
import socket
import zlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from lab import __version__
from lab.errors import ClusterError, UsageError
from lab.node.files import home_folder

NAMESPACE = "lab.cluster"
CLUSTER = f"{NAMESPACE}.name"
OWNER = f"{NAMESPACE}.owner"
NODE = f"{NAMESPACE}.node"
ZYGOTE = f"{NAMESPACE}.zygote"
RUN = f"{NAMESPACE}.run"
SHAPE = f"{NAMESPACE}.shape"
LIMITS = f"{NAMESPACE}.limits"
VERSION = f"{NAMESPACE}.version"

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


@lru_cache(maxsize=1)
def current_owner() -> str:
    """Return `user@host` of the calling user; resources of others are never touched."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def cluster_labels(cluster: str, owner: str, shape: str, run: str | None) -> dict[str, str]:
    """Return the labels of every resource of a cluster.

    Args:
        cluster: its name.
        owner: `user@host` of its owner.
        shape: the requested shape, as JSON.
        run: the run that will remove it, if any.
    """
    labels = {CLUSTER: cluster, OWNER: owner, VERSION: __version__, SHAPE: shape}
    return {**labels, RUN: run} if run else labels


def check_name(name: str) -> str:
    """Return the name, if it is valid for a cluster.

    Raises:
        UsageError: it is not.
    """
    if not NAME.fullmatch(name):
        hint = "use up to 40 lower-case letters, digits, and '-', and start with a letter or digit"
        raise UsageError(f"{name!r} is not a valid cluster name", hint)
    return name


def default_name(folder: Path | None = None) -> str:
    """Return the default cluster name of a folder: a readable part of the folder's name and a hash of its path."""
    import unicodedata

    path = str((folder or Path.cwd()).resolve())
    plain = unicodedata.normalize("NFKD", Path(path).name).encode("ascii", "ignore").decode().lower()
    readable = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:24].strip("-")
    return f"{readable or 'lab'}-{short_digest(path)}"


def short_digest(text: str) -> str:
    """Return six hexadecimal digits that distinguish a text from a few others."""
    return f"{zlib.crc32(os.fsencode(text)) & 0xFFFFFF:06x}"


class ClusterExists(ClusterError):
    """Another owner, with other locks, has created a cluster of this name; nothing of ours exists."""


def state_folder() -> Path:
    """Return the folder in which the lab keeps the state of this user's clusters."""
    return Path(os.environ.get("XDG_STATE_HOME") or f"{home_folder()}/.local/state") / "lab"


def local_home() -> Path:
    """Return the folder of this owner's local clusters.

    It is short: the path of a Unix socket has at most 107 bytes.
    """
    default = f"/tmp/lab-{os.getuid()}-{short_digest(current_owner())}"
    return Path(os.path.abspath(os.environ.get("LAB_LOCAL_HOME") or default))


def register_cluster(engine: str, cluster: str, folder: Path) -> None:
    """Record that a feature's engine has a cluster, or begins to create it; only then is such an engine asked.

    Args:
        engine: its name.
        cluster: the cluster's name.
        folder: the cluster's folder on this machine; without it, there is no such cluster.

    Raises:
        ClusterError: the entry cannot be written.
    """
    entry = _registered() / engine / cluster
    with ClusterError.on_os_error(f"cannot write {entry}", "set XDG_STATE_HOME to another folder"):
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.unlink(missing_ok=True)
        entry.symlink_to(folder)


def forget_cluster(engine: str, cluster: str) -> None:
    """Record that an engine no longer has the cluster of this name."""
    (_registered() / engine / cluster).unlink(missing_ok=True)


def registered_engines(cluster: str | None = None) -> list[str]:
    """Return the names of features' engines that have the cluster of this name, or any cluster."""
    try:
        engines = sorted(os.listdir(_registered()))
    except OSError:
        return []
    return [name for name in engines if any(one.exists() for one in (_registered() / name).glob(cluster or "*"))]


def _registered() -> Path:
    """Return the folder with a subfolder for each engine, which has an entry for each cluster."""
    return state_folder() / "engines"


def is_own(home: Path) -> bool:
    """Return whether the folder of an engine's clusters exists and is this user's.

    Its name in `/tmp` is known: another user can create it first, with clusters that run as that user.
    """
    with suppress(OSError):
        return home.stat().st_uid == home.lstat().st_uid == os.getuid()
    return False


def new_folder(home: Path, cluster: str, variable: str) -> Path:
    """Create the folder of a cluster in its engine's folder, which the environment's `variable` names.

    Raises:
        ClusterExists: the folder exists.
        ClusterError: it cannot be created.
    """
    folder, hint = home / cluster, f"set {variable} to a short path of your own"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_own(home):
            raise ClusterError(f"{home} belongs to another user", hint)
        folder.mkdir(mode=0o700)
    except OSError as error:
        cannot = f"cannot make the cluster's folder {folder}: {error.strerror}"
        if folder.exists():
            hint = "another command may be making the cluster: use another name with --name"
            raise ClusterExists(cannot, hint) from error
        raise ClusterError(cannot, hint) from error
    return folder
