"""Reduce-scatter of one tensor: all ranks' tensors are summed, and rank i keeps the i-th piece of the sum.

FSDP shards its gradients like this. (torch 2.13 calls it reduce_scatter_single too.)
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

    mine = torch.arange(2.0 * world_size) + 100 * rank
    print(f"rank {rank} gives {mine.tolist()}", flush=True)

    piece = torch.empty(2)
    dist.reduce_scatter_tensor(piece, mine)
    print(f"rank {rank} keeps {piece.tolist()}", flush=True)
    note("sum", piece)

    dist.reduce_scatter_tensor(piece, mine, op=dist.ReduceOp.AVG)
    note("average", piece)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
