"""recv without a source takes whatever comes first, and returns who sent it.

Rank 0 serves the others like this; each sends a number of messages that only itself knows, the last one negative.
"""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    if rank == 0:
        total, busy, senders = 0, world_size - 1, []
        message = torch.zeros(1, dtype=torch.int64)
        while busy:
            sender = dist.recv(message)
            print(f"rank 0 receiving data {message.item()} from rank{sender}", flush=True)
            if message.item() < 0:
                busy -= 1
                senders.append(sender)
            else:
                total += message.item()
        note("total", total)
        note("senders", sorted(senders))
    else:
        for number in range(rank):
            dist.send(torch.tensor([10 * rank + number]), dst=0)
        dist.send(torch.tensor([-1]), dst=0)
        note("total", None)
        note("senders", None)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
