"""Exits with 0 if a Docker engine answers; otherwise says why not, in one line, and exits with 3."""

from __future__ import annotations

import sys

import docker


def main() -> int:
    """Ask the engine that the environment names (DOCKER_HOST, or the usual socket)."""
    try:
        docker.from_env(timeout=20).ping()
    except docker.errors.DockerException as error:
        text = str(error)
        known = {"FileNotFoundError": "no socket", "ConnectionRefused": "refused", "PermissionError": "no permission"}
        print(next((short for sign, short in known.items() if sign in text), text.splitlines()[0][:150]))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
