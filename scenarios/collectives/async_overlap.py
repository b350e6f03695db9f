"""async_op=True: a collective starts, and the rank computes while it waits for the others.

Rank 0 starts an all_reduce and computes; the others enter it only when rank 0 tells them that it has computed. So the
computation was over before the all_reduce could possibly be, and no clock is needed to prove the overlap. Rank 0 tells
them through the store of the rendezvous: a message could wait for the all_reduce, as on NCCL.
"""

import os

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    x = torch.tensor([rank + 1])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    store = dist.PrefixStore("overlap-" + os.environ.get("TORCHELASTIC_RUN_ID", ""), store)
    pending = False
    if rank == 0:
        work = dist.all_reduce(x, async_op=True)  # returns at once with a handle
        product = torch.full((200, 200), 2.0) @ torch.full((200, 200), 3.0)
        pending = world_size > 1 and not work.is_completed()
        print(f"rank 0 has computed {product[0, 0].item()}; all_reduce still pending: {pending}", flush=True)
        note("computed", product[0, 0])
        store.set("computed", "yes")
    else:
        store.wait(["computed"])
        print(f"rank {rank} enters the all_reduce", flush=True)
        work = dist.all_reduce(x, async_op=True)

    work.wait()  # only now may x be read
    print(f"rank {rank} has the sum {x.item()}", flush=True)
    note("pending", pending)
    note("sum", x)
    note("completed", work.is_completed())

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
