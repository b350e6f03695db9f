"""A script that starts its ranks itself. Arguments: what rank 1 does, how they are started, how many."""

import os
import signal
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from lab import note


def rank_of(number, port, does, count):
    first = int(os.environ["GROUP_RANK"]) * count
    world_size = count * int(os.environ["GROUP_WORLD_SIZE"])
    address = f"tcp://{os.environ['MASTER_ADDR']}:{port}"
    dist.init_process_group("gloo", init_method=address, rank=first + number, world_size=world_size)
    total = torch.tensor(first + number)
    dist.all_reduce(total)
    note("total", total)
    if number == 1:
        if does == "raises":
            raise ValueError("no good")
        if does == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if does == "exits":
            sys.exit(3)
        if does == "hangs":
            time.sleep(1000)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def main(does, how, count, port=None):
    port = port or free_port()
    if how == "program":
        words = [sys.executable, os.path.abspath(__file__), "as a rank"]
        ranks = [subprocess.Popen([*words, str(rank), str(port), does, str(count)]) for rank in range(count)]
        sys.exit(max(rank.wait() for rank in ranks))
    if how == "torchrun":
        words = ["--standalone", f"--nproc-per-node={count}", os.path.abspath(__file__), "as a rank", does]
        sys.exit(subprocess.run([sys.executable, "-m", "torch.distributed.run", *words], check=False).returncode)
    try:
        mp.start_processes(rank_of, args=(port, does, count), nprocs=count, start_method=how)
    except mp.ProcessRaisedException:
        if len(sys.argv) < 5:
            raise
    if does == "leaves":
        subprocess.Popen(["sleep", "1234"])


if __name__ == "__main__":
    if sys.argv[1] != "as a rank":
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
    elif len(sys.argv) == 3:  # torchrun has said the rest
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 1 and sys.argv[2] == "raises":
            raise ValueError("no good")
        dist.barrier()
        dist.destroy_process_group()
    else:
        rank_of(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
