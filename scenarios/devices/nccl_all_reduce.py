"""An all_reduce of nccl belongs to a stream of the GPU: the call comes back once it is queued there."""

import os

import torch
import torch.distributed as dist

import lab

ELEMENTS = 1 << 24

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
torch.cuda.set_device(device)
dist.init_process_group("nccl")
numbers = torch.full((ELEMENTS,), float(dist.get_rank()), device=device)

queued, done = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
queued.record()
dist.all_reduce(numbers)
done.record()
done.synchronize()  # what reads the numbers on the CPU waits for the stream by itself: .item() does

lab.note("backend", dist.get_backend())
lab.note("sum", numbers[-1].item())
print(f"{ELEMENTS * 4 >> 20} MiB in {queued.elapsed_time(done):.2f} ms on {torch.cuda.get_device_name(device)}")
dist.destroy_process_group()
