"""A script with a package beside it, which finds its files by `__file__` and by the working folder.

It looks at what it is itself, as programs do that start or pickle parts of themselves.
"""

import inspect
import os
import sys
from dataclasses import dataclass

import torch.distributed as dist
import trainer

import __main__


@dataclass(frozen=True)
class Config:
    width: int
    seed: int


def main():
    dist.init_process_group()
    rank = dist.get_rank()
    trainer.fit(Config)
    folder = os.path.dirname(os.path.abspath(__file__))
    facts = {
        "name": __name__,
        "spec": __spec__,
        "package": __package__ or "",
        "argv": sys.argv,
        "in sys.path first": os.path.realpath(sys.path[0]) == os.path.realpath(folder),
        "works beside it": os.path.realpath(os.getcwd()) == os.path.realpath(folder),
        "is main": sys.modules["__main__"] is __main__ and __main__.Config is Config,
        "absolute": os.path.isabs(__main__.__file__),
        "source": inspect.getsource(Config).splitlines()[1],
        "flags": (sys.flags.optimize, sys.flags.isolated, sys.flags.no_site),
        "interactive": hasattr(sys, "ps1"),
    }
    for name, fact in facts.items():
        print(f"rank {rank} {name}: {fact}", flush=True)
    os.makedirs("outputs", exist_ok=True)
    os.chdir("outputs")  # as Hydra does
    with open(f"log-{rank}.txt", "w") as log:
        log.write("done\n")
    print(f"rank {rank} wrote {os.path.getsize(f'log-{rank}.txt')} bytes", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
