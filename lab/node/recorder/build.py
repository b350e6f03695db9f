"""Builds the compiled recorder for the torch of this interpreter: one call of the C++ compiler.

    python -m lab.node.recorder.build [FOLDER]

Without a folder, for the local engine (`~/.cache/lab/recorder`). Needs g++ >= 11 and Python's headers.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
import sysconfig

MODULE = "lab_recorder_native"
IMAGE_FOLDER = "/opt/lab-recorder"
"""Where the lab's Dockerfile puts the result."""
_FLAGS = ("-std=c++20", "-O3", "-fPIC", "-shared", "-s", "-fvisibility=hidden", "-w")
_OLDEST = [2, 8]
"""Oldest version of torch whose headers fit."""
_ALIASES = {
    "all_gather_single", "all_gather_single_coalesced", "reduce_scatter_single", "reduce_scatter_single_coalesced",
    "all_to_all_single",
}  # fmt: skip
"""Methods of torch 2.14 that call the older names, which the recorder overrides."""
_HERE = os.path.dirname(os.path.abspath(__file__))


def cache_folder() -> str:
    """Return the folder of the recorder for the local engine."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~").lstrip("~") or "/", ".cache")
    return os.path.join(cache, "lab", "recorder")


def list_sources() -> list[str]:
    """Return the paths of the C++ files."""
    return sorted(os.path.join(_HERE, name) for name in os.listdir(_HERE) if name.endswith((".cpp", ".hpp")))


def source_hash() -> str:
    """Return a short fingerprint of the C++ files and the compiler's options."""
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for path in list_sources():
        with open(path, "rb") as file:
            digest.update(os.path.basename(path).encode() + b"\0" + file.read())
    return digest.hexdigest()[:12]


def file_name(torch_version: str) -> str:
    """Return the file name of the compiled recorder for a version of torch and this interpreter.

    The name is different for every version, so an interpreter never loads a recorder that does not fit.
    """
    return f"recorder-torch{torch_version}-{sys.implementation.cache_tag}-{platform.machine()}-{source_hash()}.so"


def list_virtual_methods(header: str) -> set[str]:
    """Return the names of a C++ class's virtual methods, from the text of its header."""
    return set(re.findall(r"^  virtual [^;{}()]*?\b(\w+)\(", re.sub(r"//.*", "", header), re.MULTILINE)) - {"clone"}


def explain_unfit(torch_version: str, torch_folder: str) -> str:
    """Return why the recorder cannot be compiled for a torch without losing calls; empty if it can."""
    if [int(number) for number in re.findall("[0-9]+", torch_version)[:2]] < _OLDEST:
        return f"torch {torch_version} is older than {'.'.join(map(str, _OLDEST))}, which the compiled one needs"
    sources = "".join(_read(path) for path in list_sources())
    overridden = re.findall(r"\b(\w+)\([^;{}]*\)(?:\s+const)?(?:\s+override)?\s*\{", sources)
    folder = os.path.join(torch_folder, "include/torch/csrc/distributed/c10d")
    methods = {name for file in ("Backend.hpp", "Work.hpp") for name in list_virtual_methods(_read(folder, file))}
    if missing := sorted(methods - _ALIASES - {*overridden}):
        return f"torch {torch_version} has methods that the compiled one does not forward: {', '.join(missing)}"
    return ""


def _read(*path: str) -> str:
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def build_recorder(folder: str) -> str:
    """Compile the recorder; return its path.

    Raises:
        OSError: there is no compiler, or the folder is not writable.
        RuntimeError: it does not fit this torch, or the compiler failed; the text is the beginning of its output.
    """
    import torch

    home = os.path.dirname(torch.__file__)
    if unfit := explain_unfit(torch.__version__, home):
        raise RuntimeError(unfit)
    target = os.path.join(folder, file_name(torch.__version__))
    partial = f"{target}.{os.getpid()}"
    os.makedirs(folder, exist_ok=True)
    include = (sysconfig.get_path("include"), os.path.join(home, "include"))
    command = [
        *(os.environ.get("CXX", "g++"), *_FLAGS),
        *(f"-I{path}" for path in include),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        # Before torch 2.9, pybind11 shares types only between modules of compilers with the same ABI.
        *(f'-D{key[1:]}="{value}"' for key, value in vars(torch._C).items() if value and key.startswith("_PYBIND11_")),
        *(path for path in list_sources() if path.endswith(".cpp")),
        *(f"-L{os.path.join(home, 'lib')}", "-ltorch_python", "-ltorch_cpu", "-lc10", "-o", partial),
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError("\n".join(done.stderr.strip().splitlines()[:12]) or f"exit code {done.returncode}")
    os.rename(partial, target)
    return target


if __name__ == "__main__":
    try:
        print(build_recorder(sys.argv[1] if len(sys.argv) > 1 else cache_folder()))
    except (OSError, RuntimeError, ImportError) as failure:
        sys.exit(f"cannot build the compiled recorder: {failure}")
