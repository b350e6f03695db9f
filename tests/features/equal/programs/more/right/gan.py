"""Gan."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
generator_net, critic = DistributedDataParallel(nn.Linear(4, 8)), DistributedDataParallel(nn.Linear(8, 1))
first, second = torch.optim.Adam(generator_net.parameters(), lr=0.01), torch.optim.Adam(critic.parameters(), lr=0.01)
random = torch.Generator().manual_seed(1)
for _ in range(4):
    noise, real = torch.randn(12, 4, generator=random), torch.randn(12, 8, generator=random)
    noise, real = noise.chunk(world_size)[rank], real.chunk(world_size)[rank]
    second.zero_grad()
    (critic(generator_net(noise).detach()).mean() - critic(real).mean()).backward()
    second.step()
    first.zero_grad()
    (-critic(generator_net(noise)).mean()).backward()
    first.step()

dist.destroy_process_group()
