"""The truth that the gathers are measured against: one process that holds the whole batch."""

import torch
from torch import nn

ROWS, FEATURES, WIDTH = 4, 6, 3  # rows of one rank, what a row holds, what an embedding holds


def whole_batch(world_size):
    """The rows of all ranks, the same on every rank; rank r owns rows r * ROWS to (r + 1) * ROWS."""
    return torch.randn(world_size * ROWS, FEATURES, generator=torch.Generator().manual_seed(7))


def own_rows(rank):
    return slice(rank * ROWS, (rank + 1) * ROWS)


def make_encoder():
    torch.manual_seed(1)
    return nn.Linear(FEATURES, WIDTH)


def contrastive_loss(embeddings, rows=slice(None)):
    """NT-Xent: each row has to find its partner (0 and 1, 2 and 3, ...) among all rows, so every row meets every other.

    Mean over `rows`; all of them unless told.
    """
    z = nn.functional.normalize(embeddings, dim=1)
    similarity = z @ z.T / 0.5
    similarity.fill_diagonal_(-1e9)  # a row is not its own partner
    partner = torch.arange(len(z)) ^ 1
    return nn.functional.cross_entropy(similarity[rows], partner[rows])


def true_gradients(world_size):
    """Gradient of the loss of the whole batch: by the embeddings, and by the encoder's weight."""
    encoder = make_encoder()
    embeddings = encoder(whole_batch(world_size))
    embeddings.retain_grad()
    contrastive_loss(embeddings).backward()
    return embeddings.grad, encoder.weight.grad


def compare(gradient, truth):
    """How many times the truth a gradient is, and how much of it (0: nothing) no such factor explains."""
    ratio = (gradient * truth).sum() / (truth * truth).sum()
    return ratio.item(), ((gradient - ratio * truth).norm() / truth.norm()).item()
