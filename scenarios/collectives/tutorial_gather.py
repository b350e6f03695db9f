"""The classic of three machines, part two: every rank sends a tensor, and rank 0 prints what it receives."""

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
    if rank == 0:
        tensors = [torch.empty(1) for _ in range(world_size)]
        dist.gather(tensor, gather_list=tensors, dst=0)
        for source, received in enumerate(tensors):
            print(f"rank 0 receiving data {received} from rank{source}", flush=True)
        note("received", torch.cat(tensors))
    else:
        dist.gather(tensor, dst=0)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
