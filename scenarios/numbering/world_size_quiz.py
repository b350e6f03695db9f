"""The quiz: 16 GPUs a node, nproc_per_node 8, nnodes 3. What is the world size?

Asked here at small scale, again with half as many processes as GPUs on each node: the processes count themselves. GPUs
that no process was started for do not count, so the answer to the quiz is 3 * 8 = 24, and half of the 48 GPUs idle.
"""

import os

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    nproc_per_node, nnodes = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["GROUP_WORLD_SIZE"])
    gpus = nnodes * 2 * nproc_per_node

    counted = torch.ones(1, dtype=torch.int64)
    dist.all_reduce(counted)

    if rank == 0:
        print(f"{nnodes} nodes x {nproc_per_node} processes, {gpus} GPUs: world size {world_size}", flush=True)
    note("counted", counted)
    note("world_size", world_size)
    note("idle_gpus", gpus - world_size)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
