"""Adjust a fork of a warm agent so that a script cannot tell it from a new interpreter."""

from __future__ import annotations

import gc
import math
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module

REFUSED_PREFIXES = (
    *("LD_", "MALLOC_", "KMP_", "GOMP_", "OMP_", "MKL_", "OPENBLAS_", "VECLIB_", "BLIS_"),
    *("TORCHDYNAMO_", "TORCHINDUCTOR_", "TORCH_COMPILE_"),
)
"""Prefixes of variables that native libraries read at load time, or parts of torch at import time."""
REFUSED = (
    "ATEN_CPU_CAPABILITY", "GLIBC_TUNABLES", "NPY_DISABLE_CPU_FEATURES", "PYTHONASYNCIODEBUG",
    "PYTHONCASEOK", "PYTHONCOERCECLOCALE", "PYTHONDEVMODE", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONIOENCODING",
    "PYTHONMALLOC", "PYTHONNOUSERSITE", "PYTHONOPTIMIZE", "PYTHONPLATLIBDIR", "PYTHONPROFILEIMPORTTIME",
    "PYTHONSAFEPATH", "PYTHONTRACEMALLOC", "PYTHONUTF8", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_CPP_LOG_LEVEL",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
)  # fmt: skip
"""Variables that Python reads at its start, or torch at its import."""


def explain_refusal(name: str) -> str | None:
    """Return why a warm worker cannot honour an environment variable; None if it can."""
    if name not in APPLIED and (name in REFUSED or name.startswith(REFUSED_PREFIXES)):
        return f"Python or torch reads {name} only at its start, and a warm worker is a fork of a started process"
    return None


def _pythonpath(value: str) -> None:
    sys.path[1:1] = [folder for folder in value.split(os.pathsep) if folder]


def _pythonwarnings(value: str) -> None:
    sys.warnoptions.extend(value.split(","))
    import_module("warnings")._processoptions(value.split(","))


def _distributed_debug(_: str) -> None:
    distributed = import_module("torch.distributed")
    if distributed.is_available():
        distributed.set_debug_level_from_env()


APPLIED: Mapping[str, Callable[[str], object]] = {
    "OMP_NUM_THREADS": lambda value: import_module("torch").set_num_threads(max(1, int(value.partition(",")[0]))),
    "PYTHONPATH": _pythonpath,
    "PYTHONWARNINGS": _pythonwarnings,
    "PYTHONDONTWRITEBYTECODE": lambda value: setattr(sys, "dont_write_bytecode", bool(value)),
    "TORCH_DISTRIBUTED_DEBUG": _distributed_debug,
    "TORCH_LOGS": lambda _: import_module("torch._logging")._init_logs(),
    "TZ": lambda _: time.tzset(),
}
"""Variables that a process reads once at its start, and that it can apply again."""


SLOW_MODULES = (
    "torch._dynamo",  # imported by the first step of any optimizer
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.tensor",  # imported by torch.testing.assert_close
)
"""Parts of torch that a script may import, and that take a second or more."""
PRELOAD = "LAB_PRELOAD"
"""Variable with modules that the parent of a local cluster's nodes imports, so that no node has to."""


def missing_modules() -> list[str]:
    """Return those of `SLOW_MODULES` that this process has not imported."""
    return [name for name in SLOW_MODULES if name not in sys.modules]


def import_frozen(names: Iterable[str]) -> None:
    """Import modules and make them cheap to fork; scripts report import errors themselves.

    Without the garbage collector the import takes a tenth less. Freezing keeps collections in a worker from touching,
    and so copying, these pages. Environment variables that an import sets, such as TORCHINDUCTOR_CACHE_DIR for the
    agent's user, are removed again.
    """
    environment = dict(os.environ)
    gc.disable()
    for name in names:
        try:
            import_module(name)
        except Exception as error:
            print(f"cannot import {name}: {error!r}", file=sys.stderr)
    gc.freeze()
    gc.enable()
    # At the end of every worker, finalizers that torch registered at import would undo operator registrations:
    # 80 ms of copied pages in a fork, in a process that is about to vanish.
    for entry in list(weakref.finalize._registry.values()):  # type: ignore[attr-defined]
        entry.atexit = False
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


def apply_environment(changed: Mapping[str, str]) -> None:
    """Apply variables, changed since the agent started, that an interpreter reads when it starts."""
    for name in changed.keys() & APPLIED.keys():
        APPLIED[name](changed[name])


def renew_random_state() -> None:
    """Seed what a new interpreter would have seeded; Python reseeds `random` after every fork."""
    import torch

    torch.default_generator.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


@cache
def import_torch() -> None:
    """Import what nearly every script imports, and make it cheap to fork, unless the parent process has done so."""
    gc.disable()
    import torch

    from .recorder import compiled, install  # not at the top: the command line reads this module too

    repr(torch.zeros(1))  # what the first tensor printed imports and caches: up to 10 ms in every worker
    compiled.load_recorder()
    import_frozen(("torch.distributed", "torch.nn.parallel", install.PRELOADED))


def prepare_for_forks() -> None:
    """Import what scripts may need, and gather all memory: for a process that forks many agents."""
    import_frozen(SLOW_MODULES)
    Heap().gather(math.inf)


# -- memory that forks share

_SIZE, _PAGE = 2 << 20, 4096
_MADV_HUGEPAGE, _MADV_COLLAPSE = 14, 25
_AT_A_TIME_S = 0.05
"""How long callers may have to wait for an agent that gathers memory."""


class Heap:
    """Gathers this process's memory in pages of 2 MiB: forks then copy one page table entry for each instead of 512.

    That halves what a worker costs besides its script, 7 ms to begin and 7 to end. Without kernel support (Linux before
    6.1), it does nothing.
    """

    def __init__(self) -> None:
        self._scattered: list[int] = []
        with open("/proc/self/maps") as maps:
            for line in maps:
                bounds, rights, *_, inode, name = [*line.split(maxsplit=5), ""][:6]
                if rights == "rw-p" and inode == "0" and not name.startswith("[stack"):
                    begin, end = (int(address, 16) for address in bounds.split("-"))
                    self._scattered += range(-(-begin // _SIZE) * _SIZE, end // _SIZE * _SIZE, _SIZE)

    def gather(self, seconds: float = _AT_A_TIME_S) -> None:
        """Gather memory for so many seconds: only full pages, because empty ones would cost memory."""
        # Not at the top: the command line reads this module.
        from ctypes import CDLL, c_size_t, c_void_p, create_string_buffer

        until, libc = time.monotonic() + seconds, CDLL(None)
        while self._scattered and time.monotonic() < until:
            piece, held = self._scattered.pop(), create_string_buffer(_SIZE // _PAGE)
            address, size = c_void_p(piece), c_size_t(_SIZE)
            if libc.mincore(address, size, held) == 0 and held.raw.count(1) > len(held) * 3 // 4:
                libc.madvise(address, size, _MADV_HUGEPAGE)
                libc.madvise(address, size, _MADV_COLLAPSE)
