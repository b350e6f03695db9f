"""pin_memory: pages that cannot move, so that an accelerator can fetch them by itself while the CPU goes on.

Only copies to an accelerator gain from it. Where there is none, a tensor refuses to be pinned, and a DataLoader with
pin_memory=True says so in a warning and hands out ordinary memory. What is measured is marked with where it was: on a
node without an accelerator there is no copy to time, and none is made up.
"""

import time
import warnings

import torch
import torch.distributed as dist
from bars import bars
from torch.utils.data import DataLoader, TensorDataset

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

SAMPLES, FEATURES, BATCH = 1024, 4096, 128  # 2 MiB a batch


def epoch(pin_memory, device):
    """Seconds of loading all batches and moving them to the device; whether they were pinned; what was warned of."""
    data = TensorDataset(torch.ones(SAMPLES, FEATURES))
    pinned, total = [], torch.zeros((), device=device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = time.perf_counter()
        for (batch,) in DataLoader(data, BATCH, pin_memory=pin_memory):
            pinned.append(batch.is_pinned())
            total += batch.to(device, non_blocking=True).sum()
        seen = total.item()  # waits for the device
        seconds = time.perf_counter() - started
    assert seen == SAMPLES * FEATURES, seen
    return seconds, all(pinned), [str(warning.message) for warning in caught if "pin" in str(warning.message)]


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if has_gpu else "cpu")

    try:
        refusal = "" if torch.ones(2).pin_memory().is_pinned() else "not pinned"
    except RuntimeError as refused:
        refusal = str(refused).splitlines()[0]
    times = {}
    for pin_memory in (False, True) * 4:  # in turn, and the best of four: the first ones pay for starting up
        seconds, pinned, warned = epoch(pin_memory, device)
        name = f"pin_memory={pin_memory}"
        times[name] = min(seconds, times.get(name, seconds))
        note(f"pinned_{pin_memory}", pinned)
    print(f"rank {rank}: batches go to {device}; a tensor on pinning: {refusal or 'pinned'}; DataLoader: {warned}")
    if rank == 0:
        print("\n".join(bars(times)), flush=True)
    note("seconds", times)
    note("has_gpu", has_gpu)
    note("refused", bool(refusal))
    note("warned", bool(warned))

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


def check(results):
    """Pinned where there is a GPU, refused and warned of where there is none."""
    for result in results:
        notes, has_gpu = result["notes"], result["notes"]["has_gpu"]
        for name, expected in {"pinned_True": has_gpu, "refused": not has_gpu, "warned": not has_gpu}.items():
            got = notes[name]
            where = "with" if has_gpu else "without"
            assert got == expected, f"rank {result['rank']}, {where} a GPU: note {name}: expected {expected}, got {got}"


if __name__ == "__main__":
    main()
