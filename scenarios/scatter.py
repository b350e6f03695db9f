"""Scatter: rank 0 splits a list of tensors, and the i-th one goes to rank i.

Runs as it is under the lab, under torchrun, or wherever RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set.
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

    received = torch.empty(1)
    if rank == 0:
        chunks = [torch.tensor([10.0 * i]) for i in range(world_size)]
        print(f"rank 0 scattering {chunks}", flush=True)
        dist.scatter(received, scatter_list=chunks, src=0)
    else:
        dist.scatter(received, src=0)  # only the source has a list; the others say where the data comes from

    print(f"rank {rank} receiving data {received} from rank0", flush=True)
    note("received", received)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
