"""What the scenarios of this folder share: a folder on the common volume, a model, and the training of one process."""

import os
import tempfile
from pathlib import Path

import torch
from torch import nn

ROWS = 4  # of one rank in a step


def shared_folder():
    """A folder of this run that all ranks see: on /shared in the lab, in the temporary folder on a single machine."""
    root = os.environ.get("LAB_SHARED", "/shared")
    if not os.path.isdir(root):
        root = tempfile.gettempdir()
    folder = Path(root, f"run-{os.environ.get('TORCHELASTIC_RUN_ID', 'by-hand')}")
    folder.mkdir(exist_ok=True)
    return folder


def make_model(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 5))


def batch_of(step, world_size):
    """The rows of all ranks."""
    random = torch.Generator().manual_seed(step)
    return torch.randn(world_size * ROWS, 10, generator=random), torch.randn(world_size * ROWS, 5, generator=random)


def own_batch(step, rank, world_size):
    return tuple(part.chunk(world_size)[rank] for part in batch_of(step, world_size))


def train_step(model, optimizer, batch):
    inputs, targets = batch
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()


def weights_of(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def trained_alone(steps, world_size):
    """One process that trains on the rows of all ranks."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        train_step(model, optimizer, batch_of(step, world_size))
    return model
