"""A toy pipeline: each rank has a stage of the model, micro-batches go through them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

SIZE, CHUNKS = 8, 4


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    module = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Tanh())
    stage = PipelineStage(module, rank, world_size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, CHUNKS, loss_fn=nn.MSELoss())
    torch.manual_seed(100)
    batch, target = torch.randn(16, SIZE), torch.zeros(16, SIZE)
    losses = []
    if rank == 0:
        schedule.step(batch)
    elif rank == world_size - 1:
        schedule.step(target=target, losses=losses)
    else:
        schedule.step()
    norm = sum(parameter.grad.square().sum() for parameter in module.parameters()).sqrt()
    told = f", loss {torch.stack(losses).mean():.4f}" if losses else ""
    print(f"stage {rank} has gradients of norm {norm:.4f}{told}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
