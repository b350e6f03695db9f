"""What nodes are lent of pyroute2, by which their agents make links: what is needed of it, and no more."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from lab.errors import ClusterError
from lab.features.faults.on_node.library import NAME

PARTS = (
    "common.py",
    "process.py",
    "statsd.py",
    "config/__init__.py",
    "netlink/*.py",
    "netlink/diag/__init__.py",
    "netlink/nfnetlink/*.py",
    "netlink/rtnl/__init__.py",
    "netlink/rtnl/tcmsg/*.py",
    "netns/__init__.py",
    "protocols/__init__.py",
    "requests/__init__.py",
    "requests/main.py",
)
"""Not its own `__init__.py`, which imports all the rest: 0.3 s."""


@cache
def library() -> dict[str, str]:
    """Text by path; nothing of it is imported here.

    Raises:
        ClusterError: it is not installed.
    """
    spec = find_spec(NAME)
    if spec is None or spec.origin is None:
        raise ClusterError(f"{NAME} is not installed, by which links are made", f"pip install {NAME}")
    folder = Path(spec.origin).parent
    paths = sorted(path for part in PARTS for path in folder.glob(part))
    return {path.relative_to(folder.parent).as_posix(): path.read_text(encoding="utf-8") for path in paths}
