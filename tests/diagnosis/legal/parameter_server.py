"""Only rank 0 has an optimizer: it takes the gradients of all, steps, and sends the weights."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if rank == 0 else None
for _ in range(4):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
        parameter.grad = None
    model(torch.randn(4, 4)).pow(2).mean().backward()
    for parameter in model.parameters():
        dist.reduce(parameter.grad, dst=0)
    if optimizer is not None:
        optimizer.step()
