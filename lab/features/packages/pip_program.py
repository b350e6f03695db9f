"""pip, for another Python than the one that runs it, and without running anything of what it fetches.

Its text is run as `python -c TEXT MARKERS EXECUTABLE ARGUMENTS...`. Markers of requirements
(`; python_version < "3.11"`) mean the Python that the packages are for; programs that packages bring begin with the
path of that Python. A source distribution would have to be built, which runs whatever it holds: no process is started,
so none can be.
"""

import glob
import importlib.util
import json
import os
import runpy
import sys

NO_PIP = 71
REFUSED = "only wheels are installed, and there is only a source distribution of it"
_STARTS = ("subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system")
_ASKED_FOR_PASSWORDS = "keyring"


def main() -> None:
    """Become pip."""
    markers, executable = json.loads(sys.argv.pop(1)), sys.argv.pop(1)
    if importlib.util.find_spec("pip") is None:
        sys.path[:0] = _that_comes_with_python()
    try:
        from pip._vendor.packaging import markers as of_pip
    except ImportError:  # another pip than any that is known: markers mean this Python
        pass
    else:
        here = dict(of_pip.default_environment())
        of_pip.default_environment = lambda: {**here, **markers}
    sys.executable = executable
    sys.addaudithook(_start_nothing)
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


def _that_comes_with_python() -> "list[str]":
    """The wheel of pip that Python's own installer of it holds; where there is none, this is the end."""
    try:
        import ensurepip
    except ImportError:
        sys.exit(NO_PIP)
    found = glob.glob(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled", "pip-*.whl"))
    return found[:1] or sys.exit(NO_PIP)


def _start_nothing(event: str, arguments: "tuple[object, ...]") -> None:
    first = arguments[0] if arguments else ""
    program = os.path.basename(first) if isinstance(first, str) else ""
    if event in _STARTS and program != _ASKED_FOR_PASSWORDS:
        raise OSError(REFUSED)


if __name__ == "__main__":
    main()
