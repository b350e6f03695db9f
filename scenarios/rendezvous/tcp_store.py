"""A TCPStore by hand: the small table of keys and values through which processes find each other.

No process group is made here. Rank 0 would host the store; torchrun and the lab host one already, and everybody is a
client of it. A prefix keeps our keys apart from others.
"""

import os
from datetime import timedelta

import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=rank == 0 and not hosted, wait_for_workers=False)
    store = dist.PrefixStore("by-hand-" + os.environ.get("TORCHELASTIC_RUN_ID", ""), store)

    if rank == world_size - 1:
        store.set("greeting", f"hello from rank {rank}")
    greeting = store.get("greeting").decode()  # waits until somebody has set it
    note("greeting", greeting)

    try:
        store.wait(["never set"], timedelta(milliseconds=100))
        note("waiting", "found it")
    except RuntimeError:  # DistStoreError
        note("waiting", "timed out")

    leader = store.compare_set("leader", "", str(rank)).decode()  # sets it if it is missing; all see the first value
    store.add("leaders", int(leader == str(rank)))
    store.add("sum", rank + 1)  # adds atomically

    if store.add("arrivals", 1) == world_size:  # a barrier by hand: the last one to arrive opens the gate
        store.set("gate", "open")
    store.wait(["gate"])

    total, leaders = store.add("sum", 0), store.add("leaders", 0)
    print(f"rank {rank} read {greeting!r}; leader is rank {leader}, the sum is {total}", flush=True)
    note("leader_exists", 0 <= int(leader) < world_size)
    note("leaders", leaders)
    note("sum", total)

    if store.add("departures", 1) == world_size:
        store.set("exit", "open")
    store.wait(["exit"])  # who hosts the store must not leave first


if __name__ == "__main__":
    main()
