"""Ends in every way in which programs end. Arguments: how, or nothing: each rank in another way that is no failure."""

import argparse
import atexit
import os
import sys
import threading

import torch.distributed as dist


def leave_well(rank):
    if rank == 0:
        threading.Timer(0.2, lambda: print("a thread outlives the main one", flush=True)).start()
        sys.exit()
    if rank == 1:
        print("without flushing", end="")
        sys.stdout.flush()
        os._exit(0)
    atexit.register(print, "registered later, called first")
    raise SystemExit(0)


def leave_badly(how):
    if how == "usage":
        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float, required=True)
        parser.parse_args([])
    if how == "text":
        sys.exit("cannot go on")
    if how == "hard":
        os._exit(3)
    if how == "signal":
        os.kill(os.getpid(), 6)
    if how == "hook":
        sys.excepthook = lambda kind, error, _: print(f"hook saw {kind.__name__}: {error}", flush=True)
        raise LookupError("nothing there")
    if how == "assert":
        assert dist.get_world_size() == 0, "no ranks"
    if how == "interrupt":
        raise KeyboardInterrupt


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    atexit.register(lambda: print(f"rank {rank} says goodbye", flush=True))
    print(f"rank {rank} begins", flush=True)
    dist.barrier()
    if len(sys.argv) > 1:
        leave_badly(sys.argv[1])
    leave_well(rank)


if __name__ == "__main__":
    main()
