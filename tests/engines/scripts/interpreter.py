"""Prints, as one line of JSON, what a fresh interpreter would say about itself, PyTorch and where it is."""

import gc
import json
import locale
import logging
import os
import signal
import sys
import threading
import time
import warnings

import torch
import torch.distributed

facts = {
    "argv": sys.argv,
    "flags": str(sys.flags),
    "working folder holds": sorted(os.listdir()),
    "threads of torch": [torch.get_num_threads(), torch.get_num_interop_threads()],
    "default dtype": str(torch.get_default_dtype()),
    "gradients": torch.is_grad_enabled(),
    "deterministic": torch.are_deterministic_algorithms_enabled(),
    "debug level": str(torch.distributed.get_debug_level()),
    "initialized": torch.distributed.is_initialized(),
    "threads": [thread.name for thread in threading.enumerate()],
    "collector": [gc.isenabled(), gc.get_threshold()],
    "signals": {
        name: str(signal.getsignal(getattr(signal, name)))
        for name in ("SIGINT", "SIGTERM", "SIGCHLD", "SIGPIPE", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM")
    },
    "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "wakeup descriptor": signal.set_wakeup_fd(-1),
    "time zone": [time.tzname, time.timezone],
    "locale": [locale.getlocale(), locale.getpreferredencoding(False).lower(), sys.getfilesystemencoding()],
    "warnings": [str(entry[0]) + entry[2].__name__ for entry in warnings.filters],
    "warn options": sys.warnoptions,
    "logging": [logging.root.level, [str(handler) for handler in logging.root.handlers]],
    "umask": os.umask(0o022),
    "nice": os.nice(0),
    "byte code": sys.dont_write_bytecode,
    "hooks": [
        sys.excepthook.__name__,
        threading.excepthook.__name__,
        sys.gettrace(),
        sys.getprofile(),
    ],
    "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) < 3),
    "modules of the lab": sorted(name for name in sys.modules if name.split(".")[0] == "lab"),
    "search path": [entry for entry in sys.path[1:] if "labnode" not in entry and "site" in entry.rsplit("/", 1)[-1]],
    "umask again": os.umask(0o022),
}
print("FACTS " + json.dumps(facts), flush=True)
