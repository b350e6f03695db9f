"""Calls that are hard to record. Argument: which."""

import sys
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

nan, inf = float("nan"), float("inf")
TENSORS = {
    "float64": torch.tensor([0.1, -0.0, nan, inf, -inf, 1e300], dtype=torch.float64),
    "float16": torch.tensor([0.5, 65504.0, nan], dtype=torch.float16),
    "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "complex64": torch.tensor([1 + 2j, complex(nan, -inf)], dtype=torch.complex64),
    "bool": torch.tensor([True, False]),
    "int64": torch.tensor([-(2**63), 2**63 - 1]),
    "uint8": torch.tensor([[0, 255]], dtype=torch.uint8),
    "int32": torch.tensor(7, dtype=torch.int32),
    "float32": torch.empty(0, 3),
}


def sends_all_types(rank):
    for tag, tensor in enumerate(TENSORS.values()):
        if rank == 0:
            dist.send(tensor, 1, tag=tag)
        else:
            dist.recv(torch.zeros_like(tensor), 0, tag=tag)


def sends_many(rank):
    """More elements than are kept as they are."""
    many = torch.full((200, 5), 2.0)
    many[7, 3], many[8, 4] = -3.0, 5.0
    dist.all_reduce(many if rank == 0 else torch.zeros(200, 5))
    dist.all_reduce(many.t())  # its elements do not lie side by side
    dist.all_reduce(torch.tensor([nan] * 1000))
    dist.all_reduce(torch.arange(1000) * 2**50)


def fails(rank):
    try:
        dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND)
    except RuntimeError as error:
        print("FAILED", str(error).splitlines()[0], flush=True)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x)


def hurries(rank):
    """Works left and right, handles dropped, modules made and forgotten, while another thread wants the interpreter."""
    over = threading.Event()

    def counts():
        while not over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=counts, daemon=True)
    thread.start()
    for turn in range(6):
        first, second = torch.ones(4), torch.ones(300)
        handles = [dist.broadcast(first, 0, async_op=True), dist.all_reduce(second, async_op=True)]
        for handle in handles:
            handle.wait()
        dist.all_reduce(torch.ones(8), async_op=True)  # nobody waits for it
        if turn % 3 == 0:
            model = DistributedDataParallel(Model())
            model(torch.ones(2, 4)).sum().backward()
        if turn == 0:
            with model.join():
                for _ in range(1 + rank):
                    model(torch.ones(2, 4)).sum().backward()
    over.set()
    thread.join()


def goes_backward_without_a_pause(rank):
    """What one exchange left is overwritten by the next as soon as DDP has copied it."""
    model = DistributedDataParallel(Model())
    for turn in range(200):
        model(torch.full((2, 4), float(rank + turn))).sum().backward()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    globals()[sys.argv[1]](dist.get_rank())
    dist.barrier()
    dist.destroy_process_group()
