"""One rank hands out objects, the i-th to rank i; each arrives in a list of one place."""

import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    jobs = None
    if rank == 0:
        jobs = [{"shard": i, "files": [f"part{2 * i}", f"part{2 * i + 1}"]} for i in range(world_size)]
    mine = [None]
    dist.scatter_object_list(mine, jobs, src=0)

    print(f"rank {rank} got the job {mine[0]}", flush=True)
    note("job", mine[0])

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
