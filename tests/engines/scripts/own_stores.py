"""Two processes that a worker starts meet in every way there is, at addresses of their own; then at the run's.

own_stores.py spawn | fork | program
"""

import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import rpc

WAYS = ("env", "tcp", "by hand", "rpc", "inherited")


def join(way, port, rank):
    if way == "env":
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=2)
    elif way == "tcp":
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    elif way == "by hand":
        store = dist.TCPStore("localhost", port, 2, is_master=rank == 0)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=2)


def meet(rank, ports):
    theirs = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT")}
    for way, port in zip(WAYS, ports, strict=True):
        os.environ.update(theirs)
        if way == "rpc":
            options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://localhost:{port}")
            rpc.init_rpc(f"process{rank}", rank=rank, world_size=2, rpc_backend_options=options)
            total = int(rpc.rpc_sync(f"process{1 - rank}", torch.add, (torch.ones(()), 2)))
            rpc.shutdown()
        else:
            join(way, port, rank)
            tensor = torch.tensor(rank + 1)
            dist.all_reduce(tensor)
            total = int(tensor)
            dist.barrier()
            dist.destroy_process_group()
        sys.stdout.write(f"{way}: {total}\n")  # whole, where two processes write to one pipe
        sys.stdout.flush()


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def main(how):
    ports = free_ports(len(WAYS))
    if how == "program":
        words = [sys.executable, os.path.abspath(__file__), "child"]
        started = [
            subprocess.Popen([*words, str(rank), *map(str, ports)], env=dict(os.environ, OMP_NUM_THREADS="1"))
            for rank in range(2)
        ]
        sys.exit(max(each.wait() for each in started))
    mp.start_processes(meet, args=(ports,), nprocs=2, start_method=how)


if __name__ == "__main__":
    if sys.argv[1] == "child":
        meet(int(sys.argv[2]), [int(port) for port in sys.argv[3:]])
    else:
        main(sys.argv[1])
