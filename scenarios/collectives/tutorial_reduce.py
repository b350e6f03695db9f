"""The classic of three machines, part three: every rank sends a tensor, and rank 0 receives their sum."""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    tensor = torch.tensor([10.0 * (rank + 1)])
    print(f"rank {rank} sending data {tensor} to rank0", flush=True)
    dist.reduce(tensor, dst=0, op=dist.ReduceOp.SUM)
    if rank == 0:
        print(f"rank 0 receiving data {tensor} from all {world_size} ranks", flush=True)
        note("received", tensor)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
