"""Prints, as one line of JSON, what some environment variables bring about."""

import ctypes
import importlib.util
import json
import os
import sys
import time
import warnings

import torch
import torch.distributed

with warnings.catch_warnings(record=True) as caught:
    try:
        warnings.warn("for the test", UserWarning, stacklevel=1)
    except UserWarning:
        caught.append("raised")

facts = {
    "OMP_NUM_THREADS": torch.get_num_threads(),
    "threads that work": torch.__config__.parallel_info().split("omp_get_max_threads() : ")[-1].split()[0],
    "PYTHONPATH": [entry for entry in sys.path if entry.startswith("/opt/of/the/test")],
    "module on it": importlib.util.find_spec("only_on_the_python_path") is not None,
    "TZ": [time.tzname[0], time.localtime(0).tm_hour],
    "PYTHONWARNINGS": [sys.warnoptions, caught == ["raised"]],
    "PYTHONDONTWRITEBYTECODE": sys.dont_write_bytecode,
    "TORCH_DISTRIBUTED_DEBUG": str(torch.distributed.get_debug_level()),
    "seen by C": ctypes.CDLL(None).getenv(b"ANY_VARIABLE") != 0,
    "ANY_VARIABLE": os.environ.get("ANY_VARIABLE"),
}
print("FACTS " + json.dumps(facts), flush=True)
