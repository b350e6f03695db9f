"""A program that installs wheels into a virtual environment; no code of a wheel runs.

Its text runs as `python -c TEXT JSON`: in the build of an image as an unprivileged user, or on this machine for
local nodes. It may use the standard library of Python 3.9, and the `installer` library that the request names.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

BELOW = "lab-below.pth"
"""Adds the package folders of the Python below, for packages that the environment lacks."""

_COMPILER_BYTES, _COMPILER_S = 4 << 30, 900.0
"""Memory and time for compiling: a hostile source may take any amount of both."""


def main() -> None:
    """Install what the request in the last argument lists."""
    request = json.loads(sys.argv[-1])
    sys.path.insert(0, request["installer"])
    library = make_environment(request["folder"], request["below"])
    for wheel in request["wheels"]:
        install_wheel(wheel, request["folder"], library)
    compile_modules(library)


def make_environment(folder: str, below: "list[str]") -> str:
    """Create a virtual environment over this Python; return its folder of packages.

    Args:
        folder: where the environment goes.
        below: the package folders of this Python.
    """
    version = "{}.{}".format(*sys.version_info)
    library = os.path.join(folder, "lib", f"python{version}", "site-packages")
    programs = os.path.join(folder, "bin")
    os.makedirs(library)
    os.makedirs(programs)
    home = os.path.dirname(getattr(sys, "_base_executable", "") or sys.executable)
    with open(os.path.join(folder, "pyvenv.cfg"), "w") as file:
        file.write(f"home = {home}\ninclude-system-site-packages = false\nversion = {version}\n")
    for name in ("python", "python3", f"python{version}"):
        os.symlink(sys.executable, os.path.join(programs, name))
    with open(os.path.join(library, BELOW), "w") as file:
        file.write("".join(f"import site; site.addsitedir({path!r})\n" for path in below))
    return library


def install_wheel(wheel: str, folder: str, library: str) -> None:
    """Install one wheel into an environment.

    A file of another wheel is replaced, as pip does it.
    """
    from installer import install
    from installer.destinations import SchemeDictionaryDestination
    from installer.sources import WheelFile

    class Destination(SchemeDictionaryDestination):
        def write_to_fs(self, scheme, path, stream, is_executable):  # type: ignore[no-untyped-def]
            target = os.path.join(self.scheme_dict[scheme], path)
            if os.path.isfile(target):
                os.remove(target)
            return super().write_to_fs(scheme, path, stream, is_executable)

    programs = os.path.join(folder, "bin")
    headers = os.path.join(folder, "include")
    schemes = {"purelib": library, "platlib": library, "scripts": programs, "data": folder, "headers": headers}
    destination = Destination(schemes, os.path.join(programs, "python"), "posix")
    with WheelFile.open(Path(wheel)) as source:
        install(source, destination, {"INSTALLER": b"torch-lab"})


def compile_modules(library: str) -> None:
    """Compile all modules: workers cannot write there, and would compile them at each import."""
    limits = f"resource.setrlimit(resource.RLIMIT_AS, ({_COMPILER_BYTES}, {_COMPILER_BYTES}))"
    program = f"import compileall, resource, sys; {limits}; compileall.compile_dir(sys.argv[1], quiet=2)"
    try:
        subprocess.run([sys.executable, "-I", "-c", program, library], timeout=_COMPILER_S, check=False)
    except subprocess.TimeoutExpired:
        pass  # uncompiled modules only cost time at each import


if __name__ == "__main__":
    main()
