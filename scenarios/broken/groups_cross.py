"""Two groups of ranks 0 and 1: each of them starts an all_reduce in both, and they start with different ones.

The calls return handles at once, and gloo runs them at the same time. On NCCL, a collective of one group can wait until
an earlier one of another group is done.
"""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    losses, norms = dist.new_group([0, 1]), dist.new_group([0, 1])
    loss, norm = torch.tensor([1.0]), torch.tensor([2.0])

    works = []
    if rank == 0:
        works += [dist.all_reduce(loss, group=losses, async_op=True)]
        works += [dist.all_reduce(norm, group=norms, async_op=True)]
    elif rank == 1:
        works += [dist.all_reduce(norm, group=norms, async_op=True)]
        works += [dist.all_reduce(loss, group=losses, async_op=True)]
    for work in works:
        work.wait()
    print(f"rank {rank} has {loss.item()} and {norm.item()}", flush=True)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
