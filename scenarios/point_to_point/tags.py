"""Tags: two messages between the same ranks, taken in the other order than they were sent.

Rank 0 sends two tensors to each rank; the receiver asks for the second first. With a blocking send this would hang,
since the first message would wait for a receiver that waits for the second.
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

    first, second = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        requests = []
        for peer in range(1, world_size):
            requests.append(dist.isend(torch.tensor([100 + peer]), dst=peer, tag=1))
            requests.append(dist.isend(torch.tensor([200 + peer]), dst=peer, tag=2))
        for request in requests:
            request.wait()
    else:
        dist.recv(second, src=0, tag=2)
        print(f"rank {rank} took {second.item()} with tag 2", flush=True)
        dist.recv(first, src=0, tag=1)
        print(f"rank {rank} took {first.item()} with tag 1", flush=True)
    note("first", first)
    note("second", second)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
