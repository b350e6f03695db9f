"""Every rank has as many sequences, and not as much work: attention costs the square of a sequence's length.

Lengths are drawn as those of documents are: mostly short, now and then very long. Each step takes as long as the rank
with the most work, whichever that is this time. Then the same sequences are dealt out by their cost, the longest first,
each to whoever has the least so far.
"""

import torch
import torch.distributed as dist

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

STEPS, SEQUENCES, DIMENSION = 12, 12, 64
LEAST, MOST = 48, 960
SEED = 700


def draw(step, world_size):
    """The lengths of the sequences of all ranks in a step."""
    random = torch.Generator().manual_seed(SEED + step)
    lengths = LEAST * torch.exp(torch.randn(world_size * SEQUENCES, generator=random)).mul(4)
    return lengths.clamp(LEAST, MOST).int().tolist()


def dealt(lengths, world_size):
    """The same sequences, each to the rank that has the least to do."""
    ranks = [[] for _ in range(world_size)]
    for length in sorted(lengths, reverse=True):
        min(ranks, key=cost).append(length)
    return ranks


def cost(lengths):
    return sum(length**2 for length in lengths)


def work(lengths):
    for length in lengths:
        tokens = torch.ones(length, DIMENSION)
        torch.softmax(tokens @ tokens.T, dim=1) @ tokens


def train(name, share):
    """Returns which ranks were the slowest of a step, and what part of all time was spent waiting."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    slowest, used, paid = set(), 0, 0
    for step in range(STEPS):
        shares = share(draw(step, world_size), world_size)
        work(shares[rank])
        dist.all_reduce(torch.ones(64))  # the gradients
        costs = [cost(one) for one in shares]
        slowest.add(costs.index(max(costs)))
        used, paid = used + sum(costs), paid + world_size * max(costs)
    waiting = 1 - used / paid
    if rank == 0:
        print(f"{name}: {waiting:.0%} of the time of all ranks is waiting", flush=True)
    return slowest, waiting


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    by_number = lambda lengths, world_size: [lengths[rank::world_size] for rank in range(world_size)]  # noqa: E731
    slowest, waiting = train("as they come", by_number)
    _, waiting_when_dealt = train("dealt by cost", dealt)
    note("ranks_that_were_the_slowest", len(slowest))
    note("waits_at_least_a_tenth", waiting > 0.1)
    note("waits_less_when_dealt", waiting_when_dealt < waiting / 2)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
