"""pip, for another Python than the one that runs it, without running any fetched code.

Its text is run as `python -c TEXT MARKERS EXECUTABLE ARGUMENTS...`. Markers of requirements (`; python_version <
"3.11"`) refer to the Python that the packages are for, and programs of packages begin with its path. Building a source
distribution would run its code, so no process may be started.
"""

import glob
import importlib.util
import json
import os
import runpy
import sys

NO_PIP = 71
REFUSED = "the lab installs only wheels, but there is only a source distribution of it"
_STARTS = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system")
_ASKED_FOR_PASSWORDS = "keyring"


def main() -> None:
    """Become pip."""
    markers, executable = json.loads(sys.argv.pop(1)), sys.argv.pop(1)
    if importlib.util.find_spec("pip") is None:
        sys.path[:0] = _that_comes_with_python()
    try:
        from pip._vendor.packaging import markers as of_pip
    except ImportError:  # an unknown version of pip: markers refer to this Python
        pass
    else:
        here = dict(of_pip.default_environment())
        of_pip.default_environment = lambda: {**here, **markers}
    sys.executable = executable
    sys.addaudithook(_start_nothing)
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def _that_comes_with_python() -> "list[str]":
    """Return the wheel of pip that is bundled with Python; exit if there is none."""
    try:
        import ensurepip
    except ImportError:
        sys.exit(NO_PIP)
    wheels = glob.glob(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled", "pip-*.whl"))
    return wheels[:1] or sys.exit(NO_PIP)


def _start_nothing(event: str, arguments: "tuple[object, ...]") -> None:
    first = arguments[0] if arguments else ""
    if event in _STARTS and (os.path.basename(first) if isinstance(first, str) else "") != _ASKED_FOR_PASSWORDS:
        raise OSError(REFUSED)


if __name__ == "__main__":
    main()
