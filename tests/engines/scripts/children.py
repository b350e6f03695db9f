"""Processes and threads of a worker's own, as training scripts use them."""

import multiprocessing
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing

from lab import note


def square(number):
    return number * number


def put(index, queue):
    queue.put((index, torch.full((2,), float(index)).sum().item()))


def spawned(index, path):
    with open(f"{path}.{index}", "w") as file:
        file.write(str(index))


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.tensor([float(index)])


def loads_data():
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2)
    note("result", sum(batch.sum().item() for batch in loader))


def spawns():
    torch.multiprocessing.spawn(spawned, args=("spawned",), nprocs=2)
    note("result", "".join(open(f"spawned.{index}").read() for index in range(2)))


def uses_a_pool(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        note("result", pool.map(square, range(5)))


def uses_a_queue():
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=put, args=(index, queue)) for index in range(2)]
    for process in processes:
        process.start()
    note("result", sorted(queue.get() for _ in processes))
    for process in processes:
        process.join()


def differentiates():
    weights = torch.randn(200, 200, requires_grad=True)
    (weights @ weights).relu().sum().backward()
    note("result", weights.grad.shape == weights.shape)


def waits_for_asynchronous_collectives():
    dist.init_process_group("gloo")
    works = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(4)]
    for work in works:
        work.wait()
    note("result", dist.get_world_size())


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
