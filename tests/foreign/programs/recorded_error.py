"""A `main` under elastic's `record`, one rank of which raises after the others have passed it by."""

import os

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["TORCHELASTIC_MAX_RESTARTS"])
    print(f"rank {rank} of {world_size}, restarts {restarts}, elastic {dist.is_torchelastic_launched()}", flush=True)
    total = torch.tensor([rank])
    dist.all_reduce(total)
    print(f"rank {rank} sums up to {total.item()}", flush=True)
    dist.barrier()
    if rank == 1:
        raise ValueError("the batch of rank 1 is empty")
    dist.barrier()
    print("nobody comes here", flush=True)


if __name__ == "__main__":
    main()
