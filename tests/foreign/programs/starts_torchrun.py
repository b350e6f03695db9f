"""A launcher that puts torchrun's command together and runs it, as accelerate's does; its exit code is passed on."""

import os
import subprocess
import sys


def launch(script, processes, *words):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", script]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LAUNCHED_WITH": "bf16"}
    process = subprocess.Popen([*command, *words], env=environment)
    process.wait()
    return process.returncode


if __name__ == "__main__":
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "local_rank_argument.py")
    print(f"with all arguments: {launch(script, 2, '--steps', '2')}\n", end="", flush=True)
    print(f"without one: {launch(script, 1)}\n", end="", flush=True)
