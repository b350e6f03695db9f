"""InfoNCE in the manner of CLIP, over embeddings gathered from all ranks, trained as one process would train it.

Each rank embeds its own pairs of image and text, gathers everybody's embeddings, and computes the loss of its own rows
against all columns. Every rank's loss depends on every rank's embeddings, so backward has to bring gradients across
ranks: with the sum over ranks, and DDP's average behind it, 20 steps give the same weights as a single process that
sees the whole batch. With a backward that keeps this rank's own slice, the same code trains something else.
"""

import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

PAIRS, STEPS = 4, 20  # pairs of one rank in a batch


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.image, self.text = nn.Linear(12, 8), nn.Linear(6, 8)
        self.log_scale = nn.Parameter(torch.tensor(math.log(5.0)))

    def forward(self, image, text):
        return (
            nn.functional.normalize(self.image(image), dim=1),
            nn.functional.normalize(self.text(text), dim=1),
            self.log_scale.exp(),
        )


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, own, sum_over_ranks):
        ctx.sum_over_ranks = sum_over_ranks
        gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, own.contiguous())
        return torch.cat(gathered)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.contiguous().clone()
        if ctx.sum_over_ranks:
            dist.all_reduce(gradient)
        return gradient.chunk(dist.get_world_size())[dist.get_rank()], None


def info_nce(image, text, all_image, all_text, scale, first):
    """The i-th image belongs to the i-th text: rows of this rank begin at `first` among all."""
    partner = torch.arange(len(image)) + first
    by_image = nn.functional.cross_entropy(scale * image @ all_text.T, partner)
    by_text = nn.functional.cross_entropy(scale * text @ all_image.T, partner)
    return (by_image + by_text) / 2


def batches(world_size):
    """The whole batch of each step, the same on every rank."""
    random = torch.Generator().manual_seed(5)
    for _ in range(STEPS):
        images = torch.randn(world_size * PAIRS, 12, generator=random)
        yield images, torch.randn(world_size * PAIRS, 6, generator=random)


def train_alone(world_size):
    """The truth: one process, the whole batch, nothing distributed."""
    model = Clip()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for images, texts in batches(world_size):
        image, text, scale = model(images, texts)
        loss = info_nce(image, text, image, text, scale, first=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return nn.utils.parameters_to_vector(model.parameters()).detach(), losses


def train_together(rank, world_size, sum_over_ranks):
    model = DistributedDataParallel(Clip())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for images, texts in batches(world_size):
        mine = slice(rank * PAIRS, (rank + 1) * PAIRS)
        image, text, scale = model(images[mine], texts[mine])
        all_image, all_text = Gather.apply(image, sum_over_ranks), Gather.apply(text, sum_over_ranks)
        loss = info_nce(image, text, all_image, all_text, scale, first=rank * PAIRS)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss)  # only to report it: the mean of the ranks' losses is the loss of the whole batch
        losses.append(loss.item() / world_size)
    return nn.utils.parameters_to_vector(model.parameters()).detach(), losses


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    true_weights, true_losses = train_alone(world_size)
    weights, losses = train_together(rank, world_size, sum_over_ranks=True)
    wrong_weights, wrong_losses = train_together(rank, world_size, sum_over_ranks=False)
    difference = (weights - true_weights).abs().max().item()
    wrong_difference = (wrong_weights - true_weights).abs().max().item()
    if rank == 0:
        print("step   one process   sum over ranks   own slice only")
        for step in (0, 1, 4, STEPS - 1):
            print(f"{step:4} {true_losses[step]:13.6f} {losses[step]:16.6f} {wrong_losses[step]:16.6f}")
    print(f"rank {rank}: weights differ by {difference:.0e}; own slice only: by {wrong_difference:.0e}", flush=True)

    note("losses_difference", max(abs(ours - true) for ours, true in zip(losses, true_losses)))
    note("weights_difference", difference)
    note("weights_sum_over_truth", (weights.sum() / true_weights.sum()).item())
    note("own_slice_trains_something_else", wrong_difference > 1e-3)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
