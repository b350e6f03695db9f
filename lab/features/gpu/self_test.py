"""The self-test of `lab doctor --gpu`: what GPUs need, step by step, up to an all_reduce with nccl on all of them.

Its text runs in a container too, so it imports nothing of the lab. Each step prints a line of JSON: what was tested,
whether it worked, the result, and a fix. The first failed step is the last. `LAB_GPU_TEST_ON=cpu` runs the same test
with gloo, without a GPU.
"""

import json
import os
import socket
import subprocess
import sys

TEXT = "LAB_GPU_TEST"
ON = "LAB_GPU_TEST_ON"
DEADLINE_S = 90
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}
START = "import os; exec(os.environ['LAB_GPU_TEST'])"


def report_step(what: str, worked: bool, result: str, mend: str = "") -> None:
    """Report a step, and end the test if it failed."""
    print(json.dumps({"what": what, "worked": worked, "found": result, "mend": "" if worked else mend}), flush=True)
    if not worked:
        sys.exit(1)


def of_torch(on: str) -> int:
    """Run the steps of one process; return how many processes can take part."""
    try:
        import torch
        import torch.distributed as dist
    except Exception as error:
        report_step("torch", False, f"torch cannot be imported: {error}", "install torch, with CUDA")
        return 0
    report_step("torch", True, torch.__version__)
    if on == "cpu":
        return 2
    cuda = torch.version.cuda
    built = f"built for CUDA {cuda}" if cuda else f"{torch.__version__} is built without CUDA"
    mend = "install a build with CUDA (pip's own index has one), or name an image that has it with --image"
    report_step("torch with CUDA", cuda is not None, built, mend)
    try:
        count = torch.cuda.device_count()
        torch.cuda.init()
        problem = "" if count else "no device is visible"
    except Exception as error:
        count, problem = 0, str(error).splitlines()[0]
    mend = "install or update the NVIDIA driver; in a container, `lab doctor --gpus 1` says what the engine lacks"
    report_step("driver", not problem, problem or f"{count} device" + "s" * (count != 1), mend)
    for number in range(count):
        try:
            total = torch.ones(1000, device=f"cuda:{number}").sum().item()
            name = torch.cuda.get_device_name(number)
            report_step(f"GPU {number}", total == 1000, f"{name}: the sum of 1000 ones is {total:g}")
        except Exception as error:
            mend = "see nvidia-smi: is it in use, or of another kind?"
            report_step(f"GPU {number}", False, str(error).splitlines()[0], mend)
    there = dist.is_nccl_available()
    version = ".".join(map(str, torch.cuda.nccl.version())) if there else "this torch is built without it"
    report_step("nccl", there, version, "install a build of torch that has nccl")
    return int(count)


def as_rank(on: str) -> None:
    """Run one rank of the all_reduce."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = f"cuda:{rank}" if on == "cuda" else "cpu"
    if on == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(BACKENDS[on], rank=rank, world_size=world_size, timeout=timedelta(seconds=DEADLINE_S // 2))
    tensor = torch.full((1000,), float(rank + 1), device=device)
    dist.all_reduce(tensor)
    expected = world_size * (world_size + 1) / 2
    if tensor.tolist() != [expected] * 1000:
        sys.exit(f"rank {rank} got {tensor[0].item():g}, expected {expected:g}")
    dist.destroy_process_group()


def check_all_reduce(on: str, count: int) -> None:
    """Run an all_reduce with one process for each GPU."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    world = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command, here = [sys.executable, "-c", START], {"NCCL_DEBUG": "WARN", **os.environ, **world}
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    ranks = [
        subprocess.Popen(command, env={**here, "RANK": str(rank)}, text=True, stdout=pipe, stderr=both)
        for rank in range(count)
    ]
    problems = []
    for rank, process in enumerate(ranks):
        try:
            output, _ = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output = f"{process.communicate()[0]}\nrank {rank} did not end within {DEADLINE_S} s"
        if process.returncode:
            problems += [line for line in output.strip().splitlines()[-3:] if line.strip()]
    mend = "the text is nccl's; NCCL_DEBUG=INFO shows more; try NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1"
    report_step(f"all_reduce over {BACKENDS[on]}", not problems, "; ".join(problems) or f"ranks: {count}", mend)


if os.environ.get(TEXT):
    where = os.environ.get(ON) or "cuda"
    if "RANK" in os.environ:
        as_rank(where)
    else:
        check_all_reduce(where, of_torch(where))
