"""send and recv: a token travels from rank 0 to the last rank, and every rank adds its own number to it.

Both calls block: the receiver until the data is there, the sender until its tensor may be changed again.
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

    token = torch.zeros(1, dtype=torch.int64)
    if rank > 0:
        dist.recv(token, src=rank - 1)
        print(f"rank {rank} receiving data {token} from rank{rank - 1}", flush=True)
    note("received", token)

    token += rank + 1
    if rank < world_size - 1:
        print(f"rank {rank} sending data {token} to rank{rank + 1}", flush=True)
        dist.send(token, dst=rank + 1)
    note("passed_on", token)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
