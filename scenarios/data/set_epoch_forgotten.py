"""sampler.set_epoch forgotten: every epoch shuffles in the same way, and each rank sees the same share for ever.

All ranks have to shuffle alike, or the shares would overlap. So the sampler takes its random numbers from seed + epoch,
not from the process. Nobody tells it the epoch but set_epoch. Without it nothing fails: the loss goes down, only the
batches are the same in every epoch, and this rank never meets the other ranks' samples.
"""

import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

SAMPLES, EPOCHS, SEED = 60, 5, 9


def epochs_seen(remember_set_epoch):
    sampler = DistributedSampler(range(SAMPLES), shuffle=True, seed=SEED)
    seen = []
    for epoch in range(EPOCHS):
        if remember_set_epoch:
            sampler.set_epoch(epoch)
        seen.append(list(sampler))
    return seen


def shuffled_by_hand(rank, world_size, epoch):
    """A permutation from seed + epoch, the first samples again up to a multiple of world_size, and every n-th of it."""
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SEED + epoch)).tolist()
    order += order[: -SAMPLES % world_size]
    return order[rank::world_size]


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    for name, remember in {"forgotten": False, "remembered": True}.items():
        seen = epochs_seen(remember)
        by_hand = [shuffled_by_hand(rank, world_size, epoch if remember else 0) for epoch in range(EPOCHS)]
        different_orders = len({tuple(order) for order in seen})
        different_samples = len({index for order in seen for index in order})
        print(f"rank {rank}: {name:10} first samples of each epoch {[order[:3] for order in seen]}", flush=True)
        print(f"rank {rank}: {name:10} met {different_samples} of {SAMPLES} samples in {EPOCHS} epochs", flush=True)
        note(f"{name}_different_orders", different_orders)
        note(f"{name}_different_samples", different_samples)
        note(f"{name}_as_by_hand", seen == by_hand)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


def check(results):
    """With set_epoch every rank meets more than its share, unless its share is everything."""
    share = -(-SAMPLES // len(results))
    for result in results:
        met = result["notes"]["remembered_different_samples"]
        assert met > share or len(results) == 1, (
            f"rank {result['rank']}: note remembered_different_samples: expected more than {share}, got {met}"
        )


if __name__ == "__main__":
    main()
