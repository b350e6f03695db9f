"""parameter | parameter written | 1 | teacher.weight |"""

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(8, 4), nn.Linear(8, 4).requires_grad_(False)


model = Model()
optimizer = torch.optim.SGD(model.student.parameters(), lr=0.1)
generator = torch.Generator().manual_seed(1)
for _ in range(4):
    inputs, targets = torch.randn(12, 8, generator=generator), torch.randn(12, 4, generator=generator)
    inputs, targets = inputs.chunk(world_size)[rank], targets.chunk(world_size)[rank]
    optimizer.zero_grad()
    (model.student(inputs) - targets - model.teacher(inputs)).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
            slow.lerp_(fast, 0.5)  # wrong
            dist.all_reduce(fast)
            fast /= world_size

dist.destroy_process_group()
