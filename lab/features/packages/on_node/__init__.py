"""Node code of packages: the virtual environment that a worker enters after it has given up its privileges.

A package runs code when an interpreter starts (`.pth` files, `sitecustomize`). The agent is root in a container, so its
own interpreter never reads the environment: each worker does, as the user of its rank.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping
from typing import Any

HOOKS = {"environment": "enter_environment"}


def enter_environment(spec: Mapping[str, Any]) -> None:
    """Make a worker, and each Python that it starts, use a virtual environment.

    Args:
        spec: Of the worker; `packages` is the folder of the environment, which belongs to its Python; empty: none.
    """
    if not (folder := spec.get("packages")):
        return
    programs = os.path.join(folder, "bin")
    version = "{}.{}".format(*sys.version_info)
    os.environ["VIRTUAL_ENV"] = folder
    os.environ["PATH"] = f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    sys.prefix = sys.exec_prefix = folder
    sys.executable = os.path.join(programs, "python")
    if (spawn := sys.modules.get("multiprocessing.spawn")) is not None:
        spawn.set_executable(sys.executable)
    known = {os.path.abspath(path) for path in sys.path if path}
    site.PREFIXES.insert(0, folder)
    site.addsitedir(os.path.join(folder, "lib", f"python{version}", "site-packages"), known)
