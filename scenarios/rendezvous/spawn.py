"""mp.spawn: a script starts its own processes inside one node, without a launcher.

Each child is a fresh interpreter that imports this file again, hence the guard at its end. spawn passes the child its
number; the way to meet is ours to choose, here a file in a folder of our own. Every rank of the run does all of this
for itself.
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

PROCESSES = 2


def child(number, folder, results):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=PROCESSES)
    x = torch.tensor([number + 1])
    dist.all_reduce(x)
    print(f"child {dist.get_rank()} of {dist.get_world_size()} has the sum {x.item()}", flush=True)
    results.put([number, dist.get_world_size(), x.item()])
    dist.barrier()
    dist.destroy_process_group()


def main():
    print(f"process {os.getpid()} starts {PROCESSES} children", flush=True)
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(child, args=(folder, results), nprocs=PROCESSES)
    note("children", sorted(results.get() for _ in range(PROCESSES)))


if __name__ == "__main__":
    main()
