"""The toy that the scenarios of this folder share: Linear 10-10-5 on 100 samples, and what one process makes of it."""

import hashlib

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLES, BATCH = 100, 10  # of the data set; of one rank in one step


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)  # the same start everywhere; DDP would broadcast rank 0's parameters anyway
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def make_data():
    random = torch.Generator().manual_seed(2)
    return TensorDataset(torch.randn(SAMPLES, 10, generator=random), torch.randn(SAMPLES, 5, generator=random))


def own_batches(rank, world_size, epoch):
    """What rank `rank` sees in an epoch."""
    sampler = DistributedSampler(make_data(), num_replicas=world_size, rank=rank, shuffle=True, seed=3)
    sampler.set_epoch(epoch)
    return list(DataLoader(make_data(), batch_size=BATCH, sampler=sampler))


def global_batches(world_size, epoch):
    """What all ranks together see in an epoch: step by step their batches, one behind the other."""
    for of_ranks in zip(*(own_batches(rank, world_size, epoch) for rank in range(world_size))):
        yield tuple(torch.cat(parts) for parts in zip(*of_ranks))


def weights_of(model):
    """All parameters as one vector."""
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def fingerprint(tensor):
    """Sixteen hexadecimal digits that change if any bit of the tensor does."""
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()[:16]


def identical_on_all_ranks(results):
    """Check: every fingerprint that was noted is the same on all ranks."""
    for name, expected in results[0]["notes"].items():
        if not name.startswith("fingerprint"):
            continue
        for result in results:
            got = result["notes"].get(name)
            assert got == expected, f"rank {result['rank']}: note {name}: expected {expected} as on rank 0, got {got}"
