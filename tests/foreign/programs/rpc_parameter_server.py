"""A parameter server over RPC: rank 0 holds the parameters, two trainers send gradients and fetch what came of them."""

import os
import sys
import threading

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn, optim

TRAINERS, STEPS = 2, 3


class ParameterServer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 2)
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.lock = threading.Lock()
        self.future = torch.futures.Future()
        self.seen = 0
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def get_model(self):
        return self.model

    @staticmethod
    @rpc.functions.async_execution
    def update_and_fetch(server, grads):
        self = server.local_value()
        with self.lock:
            self.seen += 1
            for parameter, grad in zip(self.model.parameters(), grads):
                parameter.grad += grad / TRAINERS
            future = self.future
            if self.seen == TRAINERS:
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                self.seen, self.future = 0, torch.futures.Future()
                future.set_result(self.model)
        return future


def train(server, number):
    torch.manual_seed(number)
    model = server.rpc_sync().get_model()
    for _ in range(STEPS):
        loss = model(torch.randn(3, 4)).square().sum()
        loss.backward()
        grads = [parameter.grad for parameter in model.cpu().parameters()]
        model = rpc.rpc_sync(server.owner(), ParameterServer.update_and_fetch, args=(server, grads))
        model.zero_grad()
    total = sum(parameter.sum() for parameter in model.parameters()).item()
    print(f"trainer {number} has {total:.4f}\n", end="", flush=True)


def run(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=60)
    name = "server" if rank == 0 else f"trainer{rank}"
    rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options)
    if rank == 0:
        server = rpc.RRef(ParameterServer())
        for each in [rpc.rpc_async(f"trainer{n}", train, args=(server, n)) for n in range(1, world_size)]:
            each.wait()
        print("the server is done\n", end="", flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    mp.spawn(run, args=(TRAINERS + 1, sys.argv[1]), nprocs=TRAINERS + 1, join=True)
