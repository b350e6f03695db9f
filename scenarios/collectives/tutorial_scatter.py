"""The classic of three machines, part one: rank 0 scatters three tensors, and each rank prints what it receives."""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    tensor = torch.empty(1)
    if rank == 0:
        tensors = [torch.tensor([10.0 * (i + 1)]) for i in range(world_size)]
        print(f"rank 0 sending data {tensors}", flush=True)
        dist.scatter(tensor, scatter_list=tensors, src=0)
    else:
        dist.scatter(tensor, src=0)
    print(f"rank {rank} receiving data {tensor} from rank0", flush=True)
    note("received", tensor)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
