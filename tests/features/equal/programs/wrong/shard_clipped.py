"""reduced gradient | changed too early | 1 | parameter 0 |"""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = torch.randn(4, 16, 6)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
parameters = [*model.parameters()]
whole = torch.cat([one.detach().flatten() for one in parameters])
padding = (0, -len(whole) % world)
shard = torch.nn.functional.pad(whole, padding).chunk(world)[rank].clone().requires_grad_()
optimizer = torch.optim.Adam([shard], lr=0.01)
for batch in data:
    model.zero_grad()
    model(batch.chunk(world)[rank]).square().mean().backward()
    gradient = torch.nn.functional.pad(torch.cat([one.grad.flatten() for one in parameters]), padding)
    part = torch.empty_like(shard)
    dist.reduce_scatter_tensor(part, gradient)
    shard.grad = part / world
    shard.grad *= (0.05 / shard.grad.norm()).clamp(max=1.0)  # wrong
    optimizer.step()
    padded = torch.empty(len(shard) * world)
    dist.all_gather_into_tensor(padded, shard.detach())
    torch.nn.utils.vector_to_parameters(padded[: len(whole)], parameters)
dist.destroy_process_group()
