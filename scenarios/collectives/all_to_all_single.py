"""All-to-all with uneven splits: a mixture of experts sends each token to the rank of its expert.

Nobody knows how much will arrive, so the counts travel first, one to each rank; they are the sizes of what follows.
Here rank r sends i + 1 tokens, each worth 10 * r + i, to rank i.
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

    send_counts = torch.tensor([i + 1 for i in range(world_size)])
    recv_counts = torch.empty_like(send_counts)
    dist.all_to_all_single(recv_counts, send_counts)
    note("recv_counts", recv_counts)

    tokens = torch.cat([torch.full((i + 1,), 10 * rank + i) for i in range(world_size)])
    received = torch.empty(int(recv_counts.sum()), dtype=torch.int64)
    dist.all_to_all_single(received, tokens, recv_counts.tolist(), send_counts.tolist())
    print(f"rank {rank} sent {tokens.tolist()} split {send_counts.tolist()}", flush=True)
    print(f"rank {rank} received {received.tolist()} split {recv_counts.tolist()}", flush=True)
    note("received", received)

    back = torch.empty_like(tokens)  # the way home: the same splits, exchanged
    dist.all_to_all_single(back, received * 100, send_counts.tolist(), recv_counts.tolist())
    note("back", back)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
