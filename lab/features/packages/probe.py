"""A program for the Python that packages are for: prints what it is and what it has, as JSON.

Its text is run there as it is: the standard library of Python 3.9 is all that it may use.
"""

import glob
import importlib.metadata
import json
import os
import platform
import re
import sys
import sysconfig

_DEEPEST_NAMESPACE = 3
"""Levels of packages without an `__init__.py` that are searched."""
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


def main() -> None:
    """Print it."""
    version = "{}.{}".format(*sys.version_info)
    packages = sys.argv[1:]  # folders of packages that this interpreter does not read itself
    print(
        json.dumps(
            {
                "executable": sys.executable,
                "python": version,
                "abi": f"cp{version.replace('.', '')}{getattr(sys, 'abiflags', '')}",
                "platforms": _platforms(),
                "markers": _markers(version),
                "folders": _package_folders(),
                "modules": _modules(),
                "programs": _programs([sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]),
                "system_programs": _programs(os.environ.get("PATH", os.defpath).split(os.pathsep)),
                "has": _has([*sys.path, *(path for pattern in packages for path in glob.glob(pattern))]),
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


def _package_folders() -> "list[str]":
    """The folders of packages on the path of this Python."""
    names = ("site-packages", "dist-packages")
    return [path for path in dict.fromkeys(sys.path) if os.path.basename(path) in names and os.path.isdir(path)]


def _modules() -> "list[str]":
    """The modules and packages that can be imported: `torch`, or `google/protobuf` where `google` is a namespace."""
    standard = getattr(sys, "stdlib_module_names", None) or os.listdir(os.path.dirname(os.__file__))
    found = {name.partition(".")[0] for name in standard}
    for folder in _package_folders():
        _add_modules(folder, "", found, 0)
    return sorted(found)


def _add_modules(folder: str, prefix: str, found: "set[str]", depth: int) -> None:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        stem = entry.name.partition(".")[0]
        if entry.name.endswith((".dist-info", ".egg-info")) or entry.name == "__pycache__":
            continue
        if not entry.is_dir():
            if entry.name.endswith((".py", ".pyc", ".so")):
                found.add(prefix + stem)
        elif depth >= _DEEPEST_NAMESPACE or os.path.exists(os.path.join(entry.path, "__init__.py")):
            found.add(prefix + entry.name)
        else:
            _add_modules(entry.path, f"{prefix}{entry.name}/", found, depth + 1)


def _programs(folders: "list[str]") -> "list[str]":
    """The names of all files in folders."""
    return sorted({name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)})


def _has(folders: "list[str]") -> "dict[str, dict[str, object]]":
    """Each distribution by its name: its version, and what its extras need."""
    found: dict[str, dict[str, object]] = {}
    for one in importlib.metadata.distributions(path=folders):
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
