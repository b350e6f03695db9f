"""A program for the Python that packages are for: prints what it is and what it has, as JSON.

Its text is run there as it is: the standard library of Python 3.9 is all that it may use.
"""

import importlib.metadata
import json
import os
import platform
import re
import sys
import sysconfig

_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def main() -> None:
    """Print it."""
    version = "{}.{}".format(*sys.version_info)
    print(
        json.dumps(
            {
                "executable": sys.executable,
                "python": version,
                "abi": f"cp{version.replace('.', '')}{getattr(sys, 'abiflags', '')}",
                "platforms": _platforms(),
                "markers": _markers(version),
                "library": sysconfig.get_path("purelib"),
                "programs": sysconfig.get_path("scripts"),
                "has": _has(),
            }
        )
    )


def _platforms() -> "list[str]":
    """Of wheels that fit, the best first."""
    machine = platform.machine()
    try:
        minor = int((os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(".")[2])
    except (ValueError, OSError):
        return [f"musllinux_1_{minor}_{machine}" for minor in (2, 1, 0)] + [f"linux_{machine}"]
    found = []
    for number in range(minor, 4, -1):
        found.append(f"manylinux_2_{number}_{machine}")
        if number in _LEGACY:
            found.append(f"{_LEGACY[number]}_{machine}")
    return [*found, f"linux_{machine}"]


def _markers(version: str) -> "dict[str, str]":
    """What a requirement may ask for behind a semicolon."""
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": version,
        "sys_platform": sys.platform,
    }


def _has() -> "dict[str, dict[str, object]]":
    """Each distribution by its name: its version, and what its extras need."""
    found: dict[str, dict[str, object]] = {}
    for one in importlib.metadata.distributions():
        name = one.metadata["Name"]
        if name:
            about: dict[str, object] = {
                "version": one.version,
                "extras": one.metadata.get_all("Provides-Extra") or [],
                "requires": [text for text in one.requires or [] if "extra" in text],
            }
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), about)
    return found


if __name__ == "__main__":
    main()
