"""After one good all_reduce, one rank fails in a way of its own while all the others wait for it in the next.

Arguments: the way, the rank, and how the others react.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist


class TrainingError(Exception):
    """An error of the script's own."""


def exits_3():
    sys.exit(3)


def exits_with_os_exit_3():
    os._exit(3)


def raises():
    deeper("the data is bad")


def deeper(text):
    raise TrainingError(text)


def raises_from_another():
    try:
        raise KeyError("missing")
    except KeyError as error:
        raise TrainingError("wrapped") from error


def raises_while_a_signal_comes():
    class Told(TrainingError):
        @property
        def __cause__(self):  # whoever tells of it asks
            os.kill(os.getpid(), signal.SIGUSR1)

    def handler(*_):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        raise RuntimeError("of a handler")

    signal.signal(signal.SIGUSR1, handler)
    raise Told("the data is bad")


def raises_in_two_lines():
    raise TrainingError("first line\nsecond line")


def segfaults():
    ctypes.string_at(0)


def aborts():
    os.abort()


def kills_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def divides_by_zero_in_c():
    os.kill(os.getpid(), signal.SIGFPE)


def interrupts_itself():
    raise KeyboardInterrupt


def exits_early():
    sys.exit(0)


def exits_early_with_os_exit():
    os._exit(0)


def exits_with_text():
    sys.exit("no such data set: imagenet")


def leaves_the_group_then_raises():
    dist.destroy_process_group()  # the others notice now ...
    time.sleep(0.3)
    raise TrainingError("the real reason")  # ... and the reason comes later


def leaves_the_group_then_raises_much_later():
    dist.destroy_process_group()
    time.sleep(1.0)
    raise TrainingError("the real reason")


def leaves_the_group_for_good():
    dist.destroy_process_group()
    time.sleep(3600)


def raises_late():
    """The others are gone by then, with errors of their own."""
    leaves_the_group_then("the data is bad")


def leaves_the_group_then(text):
    dist.destroy_process_group()
    time.sleep(0.3)
    raise TrainingError(text)


def raises_connection_error():
    socket.create_connection(("127.0.0.1", 1))


def raises_while_a_child_holds_its_output():
    subprocess.Popen(["sleep", "1000"])
    raise TrainingError("the data is bad")


def raises_a_syntax_error():
    exec(compile("a = = 1", "generated.py", "exec"))


def raises_out_of_memory():
    torch.empty(1 << 60)


def is_ended_by_a_thread():
    threading.Thread(target=lambda: os._exit(7)).start()
    time.sleep(1000)


def recurses():
    recurses()


def main():
    way, culprit = sys.argv[1], int(sys.argv[2])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.all_reduce(torch.ones(1))
    if rank == culprit:
        globals()[way]()
    if len(sys.argv) == 3:
        dist.all_reduce(torch.ones(1))
    else:
        react(sys.argv[3])


def react(reaction):
    """What scripts do when a collective fails."""
    try:
        dist.all_reduce(torch.ones(1))
    except RuntimeError as error:
        if reaction == "wraps":
            raise TrainingError("this step failed") from error
        if reaction == "exits_1":
            print("giving up:", error)
            sys.exit(1)
        raise ValueError("cannot even report this")  # noqa: B904 - that is how it happens


if __name__ == "__main__":
    main()
