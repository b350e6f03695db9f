"""One rank collects an object of every rank; the others pass no list and get nothing."""

import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    collected = [None] * world_size if rank == 0 else None
    dist.gather_object(f"loss of rank {rank}: {rank / 4}", collected, dst=0)

    print(f"rank {rank} has {collected}", flush=True)
    note("collected", collected)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
