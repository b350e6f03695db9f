"""Host folders that a scenario mounts into the nodes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lab.spec.kinds import Kind, list_of, read_text
from lab.spec.reading import Value, names_in, near, shown

_OWN = frozenset(
    [
        "bin",
        "boot",
        "dev",
        "etc",
        "init",
        "nix",
        "opt",
        "proc",
        "root",
        "run",
        "sbin",
        "shared",
        "snap",
        "sys",
        "tmp",
        "usr",
        "var",
    ]
)
"""Folders in `/` that hold programs, their settings and what the lab keeps in a node; besides these all of `lib...`."""
_VOLUME = "/host/folder:/node/folder, with :ro behind it for read-only"


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A host folder that every node sees; opt-in, because everything else is shipped."""

    source: Path
    """Absolute path on the host."""
    target: str
    """Absolute path in the node."""
    read_only: bool = False

    def __str__(self) -> str:
        """As a scenario file and `--volume` write it."""
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


def volume_list() -> Kind:
    """Host folders for the nodes; a relative source is relative to the YAML file."""
    allowed = f"a list of volumes, each {_VOLUME}"
    schema = {"type": "string", "pattern": "^[^:]+:/[^:]+(:(ro|rw))?$"}

    def volumes(first: dict[str, Value]) -> Kind:
        def read(item: Value) -> Volume:
            volume = _read_volume(item)
            known = first.setdefault(volume.target, item)
            if known is not item:
                already = f", but line {known.where.line} mounts {volume.target} already"
                raise item.refused("one volume for each folder in the node", already)
            return volume

        return list_of(Kind(_VOLUME, read, schema, str), allowed)

    return volumes({})._replace(read=lambda value: volumes({}).read(value))


def _read_volume(value: Value) -> Volume:
    text = read_text(value, _VOLUME, quotable=False)
    source, _, rest = text.partition(":")
    target, colon, mode = rest.partition(":")
    if not source or not target or (colon and mode not in ("ro", "rw")):
        raise value.refused(_VOLUME)
    if not target.startswith("/") or ".." in PurePosixPath(target).parts or not target.strip("/."):
        raise value.refused(f"{_VOLUME}; the folder in the node is absolute, without '..', and not /")
    target = plain_target(target)
    path = Path(os.path.abspath(value.reading.folder / source))
    if not os.path.exists(path):
        found = near(path.name, names_in(path.parent))
        meant = f" (did you mean {str(path.parent / found)!r}?)" if found else ""
        raise value.refused(_VOLUME, f", but {shown(str(path), 1000)} does not exist on this host{meant}")
    problem = own_folder(target)
    if problem and target != str(path):
        raise value.refused(_VOLUME, f", but {problem}: mount it in /data, /mnt or a folder that nodes do not have")
    return Volume(source=path, target=target, read_only=mode == "ro")


def plain_target(target: str) -> str:
    """A folder of a node without empty parts, of which a leading one would make it another path for Python."""
    return "/" + "/".join(part for part in target.split("/") if part not in ("", "."))


def own_folder(target: str) -> str:
    """What a volume would hide of what every node runs on, as a clause; empty where it hides nothing."""
    top = target.split("/")[1]
    if top in _OWN or top.startswith("lib"):
        return f"/{top} is the node's own"
    return ""
