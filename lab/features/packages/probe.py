"""A program that prints, as JSON, a description of its Python and the installed packages.

Its text runs as it is, so it may use only the standard library of Python 3.9.
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
    """Print the description."""
    version = "{}.{}".format(*sys.version_info)
    packages = sys.argv[1:]  # folders of packages that this interpreter does not search
    description = {
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
    print(json.dumps(description))


def _platforms() -> "list[str]":
    """Return the platform tags of wheels that fit, the best first."""
    machine = platform.machine()
    try:
        minor = int((os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(".")[2])
    except (ValueError, OSError):
        return [f"musllinux_1_{minor}_{machine}" for minor in (2, 1, 0)] + [f"linux_{machine}"]
    platforms = []
    for number in range(minor, 4, -1):
        platforms.append(f"manylinux_2_{number}_{machine}")
        if number in _LEGACY:
            platforms.append(f"{_LEGACY[number]}_{machine}")
    return [*platforms, f"linux_{machine}"]


def _markers(version: str) -> "dict[str, str]":
    """Return the values of environment markers."""
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
    """Return the folders of packages on the path of this Python."""
    names = ("site-packages", "dist-packages")
    return [path for path in dict.fromkeys(sys.path) if os.path.basename(path) in names and os.path.isdir(path)]


def _modules() -> "list[str]":
    """Return the importable modules and packages: `torch`, or `google/protobuf` if `google` is a namespace."""
    standard = getattr(sys, "stdlib_module_names", None) or os.listdir(os.path.dirname(os.__file__))
    names = {name.partition(".")[0] for name in standard}
    for folder in _package_folders():
        _add_modules(folder, "", names, 0)
    return sorted(names)


def _add_modules(folder: str, prefix: str, names: "set[str]", depth: int) -> None:
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
                names.add(prefix + stem)
        elif depth >= _DEEPEST_NAMESPACE or os.path.exists(os.path.join(entry.path, "__init__.py")):
            names.add(prefix + entry.name)
        else:
            _add_modules(entry.path, f"{prefix}{entry.name}/", names, depth + 1)


def _programs(folders: "list[str]") -> "list[str]":
    """Return the names of all files in folders."""
    return sorted({name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)})


def _has(folders: "list[str]") -> "dict[str, dict[str, object]]":
    """Return each distribution by its name: its version, and the requirements of its extras."""
    about_of: dict[str, dict[str, object]] = {}
    for one in importlib.metadata.distributions(path=folders):
        if name := one.metadata["Name"]:
            about: dict[str, object] = {
                "version": one.version,
                "extras": one.metadata.get_all("Provides-Extra") or [],
                "requires": [text for text in one.requires or [] if "extra" in text],
            }
            about_of.setdefault(re.sub(r"[-_.]+", "-", name).lower(), about)
    return about_of


if __name__ == "__main__":
    main()
