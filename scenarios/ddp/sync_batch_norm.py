"""Synchronised BatchNorm: normalise by the mean and variance of all ranks' rows, and training equals one process again.

nn.SyncBatchNorm does this on accelerators and refuses tensors on the CPU. So the refusal is shown, and the idea is
written out by hand: add up count, sum and sum of squares over ranks, with a backward that adds up the gradients over
ranks too. Under DDP, which averages, that is exactly the single-process gradient.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

ROWS, FEATURES, STEPS = 6, 4, 4


class SumOverRanks(torch.autograd.Function):
    """all_reduce with a gradient: what every rank needs of my term comes back, added up."""

    @staticmethod
    def forward(_ctx, own):
        total = own.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(_ctx, gradient):
        total = gradient.clone()
        dist.all_reduce(total)
        return total


class HandMadeSyncBatchNorm(nn.BatchNorm1d):
    def forward(self, x):
        if not self.training:
            return super().forward(x)
        count = torch.full((1,), float(len(x)))
        total = SumOverRanks.apply(torch.cat([count, x.sum(dim=0), x.square().sum(dim=0)]))
        count, mean, mean_square = total[0], total[1 : 1 + FEATURES] / total[0], total[1 + FEATURES :] / total[0]
        variance = mean_square - mean.square()
        with torch.no_grad():
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


def make_model(norm):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(FEATURES, FEATURES), norm(FEATURES), nn.Linear(FEATURES, 1))


def whole_batch(step, world_size):
    """The batches of all ranks, one behind the other; rank r's data lie around r."""
    random = torch.Generator().manual_seed(step)
    return torch.randn(world_size * ROWS, FEATURES, generator=random) + torch.arange(world_size * ROWS)[:, None] // ROWS


def train(model, batch_of_step):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(STEPS):
        optimizer.zero_grad()
        (model(batch_of_step(step)) - 1).square().mean().backward()
        optimizer.step()


def state_of(model):
    """Parameters and running statistics as one vector."""
    return torch.cat([value.flatten() for value in model.state_dict().values() if value.is_floating_point()])


def state_trained_by_ddp(norm, rank, world_size):
    model = make_model(norm)
    train(DistributedDataParallel(model), lambda step: whole_batch(step, world_size).chunk(world_size)[rank])
    return state_of(model)


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    try:
        nn.SyncBatchNorm.convert_sync_batchnorm(make_model(nn.BatchNorm1d))(torch.randn(ROWS, FEATURES))
        refusal = ""
    except ValueError as refused:
        refusal = str(refused)
    print(f"rank {rank}: nn.SyncBatchNorm on the CPU: {refusal or 'works'}", flush=True)

    alone = make_model(nn.BatchNorm1d)
    train(alone, lambda step: whole_batch(step, world_size))  # one process, the whole batch
    synced = state_trained_by_ddp(HandMadeSyncBatchNorm, rank, world_size)
    plain = state_trained_by_ddp(nn.BatchNorm1d, rank, world_size)
    difference = (synced - state_of(alone)).abs().max().item()
    plain_difference = (plain - state_of(alone)).abs().max().item()
    print(f"rank {rank}: from one process: synchronised {difference:.1e}, BatchNorm {plain_difference:.1e}", flush=True)

    note("refuses_cpu", "expected input tensor to be on GPU" in refusal)
    note("synced_difference", difference)
    note("synced_over_truth", (synced.sum() / state_of(alone).sum()).item())
    note("plain_is_something_else", plain_difference > 1e-2)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
