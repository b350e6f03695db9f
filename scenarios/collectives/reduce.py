"""Reduce: the tensors of all ranks are combined, element by element, into one; only the destination has the result.

The same three numbers go through every operation: 2**rank, 3, and a 3 that rank 0 lacks. Ranks from 10 on
hold zeros, because products of more numbers exceed int64. What the other ranks hold after the call is undefined: gloo
leaves partial results there.
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

    last = world_size - 1
    mine = torch.tensor([2**rank, 3, 3 if rank > 0 else 0] if rank < 10 else [0, 0, 0])
    print(f"rank {rank} gives {mine.tolist()}", flush=True)

    for name in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG"):
        result = mine.double() if name == "AVG" else mine.clone()  # no AVG of integers, see reduce_refused.py
        dist.reduce(result, dst=last, op=getattr(dist.ReduceOp, name))
        if rank == last:
            print(f"rank {rank} holds {name:8}{result.tolist()}", flush=True)
        note(name, result if rank == last else None)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
