"""The solution: no submission may see it. SECRET-OF-THE-ASSIGNMENT"""

import json

import torch
import torch.distributed as dist

from lab import note

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
with open("numbers.json") as file:
    mine = torch.tensor(sum(json.load(file)[rank::size]))
note("mine", mine)
dist.all_reduce(mine)
note("total", mine)
if rank == 0:
    print("the sum is", mine.item())
    with open("answer.json", "w") as file:
        json.dump({"sum": mine.item()}, file)
