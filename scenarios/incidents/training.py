"""What the scenarios of this folder train: a small model, its gradients averaged in one all_reduce a step.

DistributedDataParallel would do the same, and take a second or two to be imported.
"""

import torch
import torch.distributed as dist
from torch import nn

RATE = 0.01


class Training:
    """A model, the same on each rank."""

    def __init__(self, width=64, group=None):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(32, width), nn.Tanh(), nn.Linear(width, 1))
        self.group = group

    def step(self, inputs, targets):
        """One step of all ranks, each with rows of its own; returns the loss of this rank's."""
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        self.model.zero_grad()
        loss.backward()
        gradients = [parameter.grad for parameter in self.model.parameters()]
        flat = nn.utils.parameters_to_vector(gradients)
        dist.all_reduce(flat, group=self.group)
        nn.utils.vector_to_parameters(flat / dist.get_world_size(), gradients)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter -= RATE * parameter.grad
        return loss.item()
