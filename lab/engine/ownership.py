"""Names and labels: who made a container, network, volume or process, and for which cluster."""

from __future__ import annotations

import getpass
import os
import re
import socket
import zlib
from functools import lru_cache
from pathlib import Path

from lab.errors import UsageError

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
