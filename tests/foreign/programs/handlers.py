"""Puts handlers of its own everywhere: signals, exceptions of threads, warnings, logging, the end."""

import atexit
import faulthandler
import logging
import os
import signal
import sys
import threading
import warnings

import torch
import torch.distributed as dist

faulthandler.enable()
stop = threading.Event()


def say(text):
    print(f"rank {os.environ['RANK']}: {text}\n", end="", flush=True)


def on_signal(number, frame):
    say(f"got {signal.Signals(number).name} in {frame.f_code.co_name in ('main', 'wait')}")
    stop.set()


def wait():
    while not stop.wait(0.01):
        pass
    stop.clear()


def main():
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, on_signal)
    say([signal.getsignal(number) is on_signal for number in (signal.SIGTERM, signal.SIGUSR1)])
    say(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    say(signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL)
    dist.init_process_group("gloo")
    for number in (signal.SIGTERM, signal.SIGUSR1):
        os.kill(os.getpid(), number)
        wait()
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    wait()
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s:%(name)s:%(message)s", force=True)
    logging.getLogger("train").info("rank %d logs", dist.get_rank())
    logging.captureWarnings(True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("once", UserWarning, stacklevel=2)
    say([str(one.message) for one in caught])
    threading.excepthook = lambda args: say(f"thread raised {args.exc_type.__name__}")
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    child = os.fork()
    if child == 0:
        os._exit(7)
    say(f"child ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
    total = torch.ones(2)
    work = dist.all_reduce(total, async_op=True)
    work.wait()
    say(total.tolist())
    atexit.register(say, "the end")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
