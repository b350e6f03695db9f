"""Scatter from the last rank: it deals out the rows of a matrix, the i-th row to rank i.

The source is a choice, and only the source needs the data. All rows must have the same shape, because the receivers
allocate theirs before anything arrives.
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

    dealer = world_size - 1
    row = torch.empty(3)
    if rank == dealer:
        matrix = torch.tensor([[i, 10.0 * i, 100.0 * dealer] for i in range(world_size)])
        print(f"rank {rank} deals out\n{matrix}", flush=True)
        dist.scatter(row, scatter_list=list(matrix), src=dealer)
    else:
        dist.scatter(row, src=dealer)

    print(f"rank {rank} got row {row}", flush=True)
    note("row", row)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
