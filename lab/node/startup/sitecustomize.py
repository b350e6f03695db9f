"""Every Python that a script starts loads this; if it joins a process group, it is recorded, and else costs nothing.

Only the folder of this file is on PYTHONPATH. This file loads a `sitecustomize` that it shadows.
"""

import os
import sys

SETTINGS = "LAB_STARTED"
_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = os.path.dirname(os.path.dirname(_HERE))
_MODULE = "torch.distributed.distributed_c10d"


class _Finder:
    """Waits for the import of torch.distributed."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        try:
            started = __import__(os.path.basename(_PACKAGE) + ".node.rank.joining", fromlist=["prepare_started"])
            return started.prepare_started(os.environ[SETTINGS], name, path, target)
        except Exception:  # without a record the script still runs
            return None


def _load_the_other() -> None:
    for finder in sys.meta_path:
        spec = finder.find_spec("sitecustomize", None) if hasattr(finder, "find_spec") else None
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module(sys.modules["sitecustomize"])
            return


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
if "LAB_LAUNCHED" in os.environ:
    sys.path.append(os.path.dirname(_PACKAGE))
    __import__(os.path.basename(_PACKAGE) + ".node.launched", fromlist=["attach_worker"]).attach_worker()
    sys.path.pop()
if SETTINGS in os.environ and "LAB_WORKER_SPEC" not in os.environ:
    sys.path.append(os.path.dirname(_PACKAGE))  # as workers have it, for `import lab`
    sys.meta_path.insert(0, _Finder())
_load_the_other()
