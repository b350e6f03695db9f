"""Barrier: nobody leaves before everybody has arrived, proved in two ways.

By the clock: the first to leave leaves after the last has arrived. And by a counter in the store, which needs no
clock: who has left the barrier must see that all have counted themselves before it.
"""

import os
import time

import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    store = dist.PrefixStore("barrier-" + os.environ.get("TORCHELASTIC_RUN_ID", ""), store)

    time.sleep(0.05 * rank)  # the higher the rank, the later it comes
    store.add("arrivals", 1)
    arrived = time.time()
    dist.barrier()
    left = time.time()
    seen = store.add("arrivals", 0)

    print(f"rank {rank} arrived at {arrived:.6f}, left at {left:.6f}, saw {seen} arrivals", flush=True)
    note("arrived", arrived)
    note("left", left)
    note("seen", seen)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
