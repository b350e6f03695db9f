"""DistributedSampler deals the samples out like cards, and repeats some to make the hands equal.

Rank r gets samples r, r + world_size, r + 2 * world_size, ... Where the number of samples does not divide, the first
ones are dealt again (drop_last=False) or the last ones are left out (drop_last=True). Equal hands matter: a rank with
one batch more would wait for the others in backward, for ever.
"""

import torch.distributed as dist
from torch.utils.data import DistributedSampler

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

SAMPLES = range(10)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    padded = list(DistributedSampler(SAMPLES, shuffle=False))  # takes rank and world size from the process group
    cut = list(DistributedSampler(SAMPLES, shuffle=False, drop_last=True))
    print(f"rank {rank}: drop_last=False: {padded}   drop_last=True: {cut}", flush=True)
    note("padded", padded)
    note("cut", cut)

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


def check(results):
    """Padded: everything is there at least once. Cut: everything at most once."""
    for name, wrong in (("padded", lambda count: count < 1), ("cut", lambda count: count > 1)):
        dealt = [index for result in results for index in result["notes"][name]]
        odd = [index for index in SAMPLES if wrong(dealt.count(index))]
        assert not odd, f"note {name}: samples {odd} are dealt {[dealt.count(index) for index in odd]} times"


if __name__ == "__main__":
    main()
