"""Two messages between the same ranks, told apart by tags, and asked for in the other order than they are sent.

gloo delivers each message to the receive with its tag. NCCL ignores tags: the first send meets the first receive.
"""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    loss, norm = torch.tensor([1.0]), torch.tensor([2.0])
    works = []
    if rank == 0 and world_size > 1:
        works += [dist.isend(loss, dst=1, tag=1)]
        works += [dist.isend(norm, dst=1, tag=2)]
    elif rank == 1:
        works += [dist.irecv(norm, src=0, tag=2)]
        works += [dist.irecv(loss, src=0, tag=1)]
    for work in works:
        work.wait()
    print(f"rank {rank} has {loss.item()} and {norm.item()}", flush=True)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
