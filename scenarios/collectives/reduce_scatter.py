"""Reduce-scatter: the i-th chunks of all ranks are summed, and the sum goes to rank i.

The first half of an all-reduce; all_gather is the other. In the form with a list the chunks may differ in size: here
the i-th has i + 1 elements.
"""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    chunks = [torch.full((i + 1,), 10.0 * rank + i) for i in range(world_size)]
    print(f"rank {rank} gives {[chunk.tolist() for chunk in chunks]}", flush=True)

    total = torch.empty(rank + 1)
    dist.reduce_scatter(total, chunks)
    print(f"rank {rank} holds the sum of everybody's chunk {rank}: {total.tolist()}", flush=True)
    note("total", total)

    largest = torch.empty(rank + 1)
    dist.reduce_scatter(largest, chunks, op=dist.ReduceOp.MAX)
    note("largest", largest)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
