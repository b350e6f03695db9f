"""One rank is slow in every step; the others are as slow as it is, because they wait for it."""

import time

import torch
import torch.distributed as dist

try:
    from lab import note
except ImportError:
    note = print

dist.init_process_group("gloo")
rank = dist.get_rank()
waited = 0.0

dist.barrier()
for _ in range(4):
    time.sleep(0.2 if rank == 1 else 0.02)  # rank 1 has the slow disk, the hot GPU, the large batch
    began = time.perf_counter()
    dist.all_reduce(torch.ones(4))
    waited += time.perf_counter() - began
print(f"rank {rank} waited {waited:.2f} s for the others")

# Who waits least is who the others wait for.
everybody = [torch.zeros(1, dtype=torch.float64) for _ in range(dist.get_world_size())]
dist.all_gather(everybody, torch.tensor([waited], dtype=torch.float64))
times = [value.item() for value in everybody]
note("straggler", times.index(min(times)))
dist.destroy_process_group()
