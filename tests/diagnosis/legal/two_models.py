"""Teacher and student: one is trained, both are wrapped, only one of them in each step."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
teacher = DistributedDataParallel(torch.nn.Linear(4, 3))
student = DistributedDataParallel(torch.nn.Linear(4, 3))
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
for step in range(6):
    data = torch.randn(2, 4)
    with torch.no_grad():
        wanted = teacher.module(data)
    optimizer.zero_grad()
    (student(data) - wanted).pow(2).mean().backward()
    optimizer.step()
    if step % 3 == 2:
        teacher(data).sum().backward()
