"""Names and labels of clusters, and where engines keep what they know of them."""

from __future__ import annotations

import getpass
import os
import re
import socket
import zlib
from functools import lru_cache
from pathlib import Path

from lab import __version__
from lab.errors import ClusterError, UsageError

NAMESPACE = "lab.cluster"
CLUSTER = f"{NAMESPACE}.name"
OWNER = f"{NAMESPACE}.owner"
NODE = f"{NAMESPACE}.node"
ZYGOTE = f"{NAMESPACE}.zygote"
RUN = f"{NAMESPACE}.run"
SHAPE = f"{NAMESPACE}.shape"
LIMITS = f"{NAMESPACE}.limits"
VERSION = f"{NAMESPACE}.version"

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


@lru_cache(maxsize=1)
def owner() -> str:
    """`user@host` of the invoking person; what belongs to others is never touched."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def cluster_labels(cluster: str, owner: str, shape: str, run: str | None) -> dict[str, str]:
    """The labels of everything that a cluster is made of.

    Args:
        cluster: its name.
        owner: whose it is.
        shape: what was asked for, as JSON.
        run: the run that will remove it, if any.
    """
    labels = {CLUSTER: cluster, OWNER: owner, VERSION: __version__, SHAPE: shape}
    return {**labels, RUN: run} if run else labels


def check_name(name: str) -> str:
    """The name, if a cluster may be called that.

    Raises:
        UsageError: it may not.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a cluster",
            "use up to 40 lower-case letters, digits and '-', a letter or digit first",
        )
    return name


def default_name(folder: Path | None = None) -> str:
    """The default cluster of a folder: a readable part of its name and a hash of its path."""
    import unicodedata

    path = str((folder or Path.cwd()).resolve())
    plain = unicodedata.normalize("NFKD", Path(path).name).encode("ascii", "ignore").decode().lower()
    readable = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:24].strip("-")
    return f"{readable or 'lab'}-{digest(path)}"


def digest(text: str) -> str:
    """Six hexadecimal digits that tell one text from a few others."""
    return f"{zlib.crc32(os.fsencode(text)) & 0xFFFFFF:06x}"


class Taken(ClusterError):
    """Somebody else, with other locks, makes a cluster of that name: nothing of ours is there."""


def state_folder() -> Path:
    """Where the lab keeps what it has to know of this user's clusters."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "lab"


def local_home() -> Path:
    """Where this owner's local clusters live; short, because the path of a Unix socket has at most 107 bytes."""
    default = f"/tmp/lab-{os.getuid()}-{digest(owner())}"
    return Path(os.path.abspath(os.environ.get("LAB_LOCAL_HOME") or default))


def register_cluster(engine: str, cluster: str, folder: Path) -> None:
    """Note that an engine of a feature has a cluster, or begins to make it: such an engine is asked only then.

    Args:
        engine: its name.
        cluster: the cluster's name.
        folder: where the cluster is on this machine; when that is gone, so is the cluster.

    Raises:
        ClusterError: it cannot be noted.
    """
    entry = _registered() / engine / cluster
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.unlink(missing_ok=True)
        entry.symlink_to(folder)
    except OSError as error:
        raise ClusterError(f"cannot write {entry}: {error.strerror}", "set XDG_STATE_HOME to another folder") from error


def forget_cluster(engine: str, cluster: str) -> None:
    """Note that an engine does not have the cluster of this name any more."""
    (_registered() / engine / cluster).unlink(missing_ok=True)


def registered_engines(cluster: str | None = None) -> list[str]:
    """Names of engines of features that have the cluster of this name, or any."""
    try:
        engines = sorted(os.listdir(_registered()))
    except OSError:
        return []
    return [name for name in engines if any(one.exists() for one in (_registered() / name).glob(cluster or "*"))]


def _registered() -> Path:
    """A folder for each engine, in it an entry for each cluster."""
    return state_folder() / "engines"


def new_folder(home: Path, cluster: str, variable: str) -> Path:
    """Make the folder of a cluster in that of its engine, which `variable` of the environment names.

    Raises:
        Taken: there is one already.
        ClusterError: it cannot be made.
    """
    folder, hint = home / cluster, f"set {variable} to a short path of your own"
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if home.stat().st_uid != os.getuid():
            raise ClusterError(f"{home} belongs to somebody else", hint)
        folder.mkdir(mode=0o700)
    except OSError as error:
        cannot = f"cannot make the cluster's folder {folder}: {error.strerror}"
        if folder.exists():
            raise Taken(cannot, "another command may be making the cluster: use another name with --name") from error
        raise ClusterError(cannot, hint) from error
    return folder
