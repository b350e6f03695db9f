"""Several collectives in flight: DDP starts one for each bucket of gradients and waits for all of them at the end.

All ranks must start them in the same order; they may wait for them in any order.
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

    buckets = [torch.full((3,), rank + 100 * i) for i in range(4)]
    handles = [dist.all_reduce(bucket, async_op=True) for bucket in buckets]
    print(f"rank {rank} has {len(handles)} collectives in flight", flush=True)

    for i in reversed(range(4)):
        handles[i].wait()
        print(f"rank {rank} has bucket {i}: {buckets[i].tolist()}", flush=True)

    note("buckets", buckets)
    note("completed", [handle.is_completed() for handle in handles])

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
