"""Objects travel as pickles: broadcast_object_list replaces the items of everybody's list by those of the source.

A configuration that rank 0 has read is the usual case. Unpickling runs code: only for peers that you trust.
"""

import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    objects = [None, None, None]  # as many places as the source has
    if rank == 0:
        objects = [{"lr": 0.1, "layers": [10, 10, 5]}, "adam", world_size]
    dist.broadcast_object_list(objects, src=0)

    print(f"rank {rank} has {objects}", flush=True)
    note("objects", objects)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
