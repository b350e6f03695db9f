"""A strided view is no safe argument: gloo (torch 2.13) sums the wrong elements of it and says nothing.

`x[::2]` looks at elements 0 and 2 of its storage, but the sum runs over elements 0 and 1. `.contiguous()` makes a copy
without gaps; the result has to be copied back by hand. (nccl refuses such tensors instead.)
"""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    storage = torch.arange(4.0) + rank
    view = storage[::2]
    print(f"rank {rank} sums the view {view.tolist()} of {storage.tolist()}", flush=True)
    packed = view.contiguous()

    dist.all_reduce(view)
    print(f"rank {rank} has {view.tolist()} in the view and {storage.tolist()} behind it", flush=True)
    note("view", view)

    dist.all_reduce(packed)
    print(f"rank {rank} has {packed.tolist()} in the contiguous copy", flush=True)
    note("packed", packed)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
