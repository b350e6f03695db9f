"""Where the engines of a swarm's hosts are: what a file says, or else what follows from where its manager is.

The file is `~/.config/lab/swarm.json` (or what LAB_SWARM names), and need not be there. All keys may be left out:

    {"manager": "ssh://me@a", "hosts": {"a": "ssh://me@a", "b": "context:b"}, "shared": "/srv/lab"}
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lab.errors import EngineUnavailable

_KEYS = ("manager", "hosts", "shared", "made_by")
_SAYS_WHERE = ("ssh", "tcp", "http", "https")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is known of a swarm beforehand."""

    manager: str | None = None
    """Address of the engine of a manager; None: the engine that the docker command line would use."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Address of the engine of each host, by the name that the swarm has for it."""
    shared: str | None = None
    """A folder that all hosts have in common, for what nodes share; None: they share with those on their host."""


def settings_file() -> Path:
    """The file."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(os.environ.get("LAB_SWARM") or f"{base}/lab/swarm.json")


def read_settings() -> Settings:
    """What the file says; nothing, where there is none.

    Raises:
        EngineUnavailable: it cannot be read, or says something else.
    """
    path = settings_file()
    try:
        said = json.loads(path.read_text())
    except FileNotFoundError:
        if os.environ.get("LAB_SWARM"):
            raise EngineUnavailable(f"LAB_SWARM names {path}, which is not there", "see docs/swarm.md") from None
        return Settings()
    except (OSError, ValueError) as error:
        raise _wrong(path, f"cannot be read: {error}") from error
    return check_settings(path, said)


def check_settings(path: Path, said: Any) -> Settings:
    """What was read from the file, if it can mean something.

    Raises:
        EngineUnavailable: it cannot; the message says what was found, and what is allowed.
    """
    if not isinstance(said, dict):
        raise _wrong(path, "holds no object")
    for name in said:
        if name not in _KEYS:
            raise _wrong(path, f"has a key {name!r}; there are manager, hosts and shared")
    hosts = said.get("hosts", {})
    if not isinstance(hosts, dict) or not all(isinstance(address, str) for address in hosts.values()):
        raise _wrong(path, f"has hosts {hosts!r}; it takes an object of addresses by name")
    manager, shared = said.get("manager"), said.get("shared")
    if not isinstance(manager, str | None):
        raise _wrong(path, f"has manager {manager!r}; it takes an address")
    if not isinstance(shared, str | None) or (shared is not None and not shared.startswith("/")):
        raise _wrong(path, f"has shared {shared!r}; it takes the absolute path of a folder")
    return Settings(manager=manager, hosts=hosts, shared=shared)


def follows(manager: str, address: str) -> str | None:
    """The address of the engine of a host that can be reached as its manager can; None where that cannot be said.

    Args:
        manager: the address of the manager's engine.
        address: the host's own, as the swarm knows it.
    """
    parts = urlsplit(manager)
    if parts.scheme not in _SAYS_WHERE or not parts.hostname or not address:
        return None
    user = f"{parts.username}@" if parts.username else ""
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{user}{address}{port}"


def _wrong(path: Path, what: str) -> EngineUnavailable:
    return EngineUnavailable(f"{path} {what}", "see docs/swarm.md, or remove it")
