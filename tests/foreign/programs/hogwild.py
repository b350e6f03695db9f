"""Hogwild: processes that train one model in shared memory, without locks and without a process group."""

import torch
import torch.multiprocessing as mp
from torch import nn, optim

PROCESSES, STEPS = 3, 20


def train(number, model, seen, lock):
    torch.manual_seed(number)
    torch.set_num_threads(1)
    optimizer = optim.SGD(model.parameters(), lr=0.001)
    for _ in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(8, 4)
        nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
        with lock:
            seen += 1
    print(f"process {number} made {STEPS} steps\n", end="", flush=True)


if __name__ == "__main__":
    mp.set_start_method("spawn", force=True)
    torch.manual_seed(1)
    model = nn.Linear(4, 1)
    model.share_memory()
    before = model.weight.clone()
    seen, lock = torch.zeros((), dtype=torch.long).share_memory_(), mp.Lock()
    processes = [mp.Process(target=train, args=(number, model, seen, lock)) for number in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    print(f"steps {seen.item()}, changed {not torch.equal(before, model.weight)}\n", end="", flush=True)
    print(f"exit codes {[process.exitcode for process in processes]}\n", end="", flush=True)
    try:
        mp.spawn(train, args=(model, seen), nprocs=1)  # an argument is missing
    except mp.ProcessRaisedException as error:
        print(f"spawn passes on: {'missing 1 required positional argument' in str(error)}\n", end="", flush=True)
