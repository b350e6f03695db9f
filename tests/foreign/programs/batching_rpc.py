"""The recipe on batch RPC: a server that gathers gradients in futures, trainers that run in its callbacks."""

import os
import sys
import threading

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn, optim

TRAINERS, STEPS = 2, 3


class Server:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1)
        self.lock = threading.Lock()
        self.future = torch.futures.Future()
        self.waiting = 0
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.1)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)

    def get_model(self):
        return self.model

    @staticmethod
    @rpc.functions.async_execution
    def update(server_rref, gradients):
        self = server_rref.local_value()
        with self.lock:
            self.waiting += 1
            for parameter, gradient in zip(self.model.parameters(), gradients):
                parameter.grad += gradient
            future = self.future
            if self.waiting == TRAINERS:
                for parameter in self.model.parameters():
                    parameter.grad /= TRAINERS
                self.waiting = 0
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=False)
                future.set_result(self.model)
                self.future = torch.futures.Future()
        return future


def run_trainer(server_rref, number):
    model = server_rref.rpc_sync().get_model()
    generator = torch.Generator().manual_seed(number)
    for _ in range(STEPS):
        x = torch.randn(4, 3, generator=generator)
        model.zero_grad()
        model(x).square().mean().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        model = rpc.rpc_sync(server_rref.owner(), Server.update, args=(server_rref, gradients))
    return model.weight.detach()


def run(rank, world_size, port):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=port)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=16, rpc_timeout=60)
    name = "server" if rank == 0 else f"trainer{rank}"
    rpc.init_rpc(name, rank=rank, world_size=world_size, rpc_backend_options=options)
    if rank == 0:
        server = rpc.RRef(Server())
        futures = [rpc.rpc_async(f"trainer{n}", run_trainer, args=(server, n)) for n in range(1, TRAINERS + 1)]
        weights = torch.futures.wait_all(futures)
        print(f"trainers agree: {torch.equal(*weights)}, {weights[0].sum():.4f}\n", end="", flush=True)
    rpc.shutdown()
    print(f"{name} is done\n", end="", flush=True)


if __name__ == "__main__":
    mp.spawn(run, args=(TRAINERS + 1, sys.argv[1]), nprocs=TRAINERS + 1, join=True)
