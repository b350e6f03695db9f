# kind: shape | mismatch | slipped | left_early | counts
# rank: 2
"""Gradients are reduced from hooks; one rank has frozen its biases and has fewer of them."""

import torch
import torch.distributed as dist


def reduce(gradient):
    dist.all_reduce(gradient)  # cause
    return gradient


dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 3))
for name, parameter in model.named_parameters():
    if rank == 2 and "bias" in name:
        parameter.requires_grad_(False)
    else:
        parameter.register_hook(reduce)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
