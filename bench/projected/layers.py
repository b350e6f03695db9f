"""Layers whose own work is done by this machine's cores, or stood in for by waiting, as a host waits for its device."""

import random
import time

import torch
import torch.distributed as dist
from torch import nn

FORWARD_S, BACKWARD_S = 0.005, 0.010
JITTER = 0.1
"""Standard deviation of the logarithm of each wait's length."""


def linear(width, on_device):
    """A linear layer, computed here or on a device that is not there."""
    return OnDevice(width) if on_device else nn.Linear(width, width)


class OnDevice(nn.Linear):
    """A linear layer that waits as long as a device would compute, and whose gradients are then there."""

    def __init__(self, width):
        super().__init__(width, width)
        self.draw = random.Random(dist.get_rank())

    def forward(self, x):
        return _Waits.apply(x, self.weight, self.bias, self.draw)


class _Waits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, draw):
        ctx.draw, ctx.shapes = draw, (weight.shape, bias.shape)
        time.sleep(FORWARD_S * draw.lognormvariate(0, JITTER))
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(BACKWARD_S * ctx.draw.lognormvariate(0, JITTER))
        return gradient.clone(), *(torch.full(shape, 1e-3) for shape in ctx.shapes), None
