"""Ranks that somebody at a terminal talks with. Arguments: the way, and what it needs."""

# ruff: noqa: T100

import hashlib
import os
import pdb
import signal
import sys

import torch
import torch.distributed as dist


def stops(*ranks):
    """These ranks come to a breakpoint before a collective."""
    dist.init_process_group("gloo")
    rank, x = dist.get_rank(), torch.ones(1)
    if str(rank) in ranks:
        breakpoint()
    dist.all_reduce(x)
    print("sum", x.item())


def sets_trace():
    pdb.set_trace()


def writes_what_acts():
    """At a breakpoint, what is shown has sequences that would act."""
    title = "\x1b]0;mine\x07\x1b[2J\x9b3J"  # noqa: F841
    breakpoint()


def asks_without_taking():
    """Says over and over that it is at a breakpoint, and has left it, and takes nothing of what it is given."""
    from labnode.node.messages.agent import Breakpoint, Continued
    from labnode.node.rank.note import send_statement
    from labnode.node.statement import SOCKET_VARIABLE

    for number in range(1_500):
        send_statement(os.environ[SOCKET_VARIABLE], Breakpoint(0, float(number), at="\x1b[2Jx.py:1"))
        send_statement(os.environ[SOCKET_VARIABLE], Continued(0, float(number)))


def asks():
    """Asks for a word, then says how large the terminal is, each time that it changes, and ends at the word end."""
    signal.signal(signal.SIGWINCH, lambda *_: print("now", *os.get_terminal_size(), flush=True))
    if int(os.environ["RANK"]) == 1:
        print("size", *os.get_terminal_size(), sys.stdin.isatty(), os.isatty(2))
        word = input("word? ")
        print(f"got {word!r}")
        while input() != "end":
            pass
    else:
        breakpoint()
        print("rank", os.environ["RANK"], "reads", repr(sys.stdin.read()))


def reads():
    data = sys.stdin.buffer.read()
    print(len(data), hashlib.sha256(data).hexdigest())


def reads_lines():
    for line in sys.stdin:
        print("line", line.strip(), flush=True)


def reads_nothing():
    print("ready", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
