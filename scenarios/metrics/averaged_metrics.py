"""The mean of the ranks' metrics is not the metric of the whole.

Each rank scores its own part of the test set; the parts are not equally large. Averaging precision over ranks weighs a
rank that said yes twice like one that said yes fifty times. Counts add up, so one all_reduce of four numbers gives
accuracy, precision and recall exactly, without a gather. AUC compares samples of different ranks with each other: no
number that a rank computes alone is enough, the logits themselves have to be gathered (see gathered_metrics).
"""

import torch
import torch.distributed as dist
from arithmetic import accuracy_precision_recall, area_under_curve, counts

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    random = torch.Generator().manual_seed(6)  # the whole test set, the same on every rank
    sizes = [20 + 10 * r for r in range(world_size)]
    targets = (torch.rand(sum(sizes), generator=random) < 0.4).long()
    logits = torch.randn(sum(sizes), generator=random) + targets - 0.5
    logits += torch.repeat_interleave(torch.linspace(-1, 1, world_size), torch.tensor(sizes))  # data differ by rank
    alone = [*accuracy_precision_recall(*counts(logits, targets)), area_under_curve(logits, targets)]

    own_logits, own_targets = logits.split(sizes)[rank], targets.split(sizes)[rank]
    own_counts = torch.tensor(counts(own_logits, own_targets))
    own = [*accuracy_precision_recall(*own_counts.tolist()), area_under_curve(own_logits, own_targets)]

    averaged = torch.tensor(own, dtype=torch.float64)
    dist.all_reduce(averaged)
    averaged /= world_size
    dist.all_reduce(own_counts)
    added = accuracy_precision_recall(*own_counts.tolist())

    print(f"rank {rank}: my {sizes[rank]} samples: " + " ".join(f"{value:.4f}" for value in own), flush=True)
    if rank == 0:
        print(f"{'':20}accuracy precision recall AUC")
        print(f"{'one process':20}" + "   ".join(f"{value:.4f}" for value in alone))
        print(f"{'counts added':20}" + "   ".join(f"{value:.4f}" for value in added) + "   (not from counts)")
        print(f"{'metrics averaged':20}" + "   ".join(f"{value:.4f}" for value in averaged.tolist()), flush=True)

    for name, value, true in zip(("accuracy", "precision", "recall"), added, alone):
        note(f"{name}_difference", value - true)
    note("averages_differ", [abs(mean - true) > 1e-3 for mean, true in zip(averaged.tolist(), alone)])
    note("own", own)
    note("averaged", averaged)
    note("right_yes", own_counts[0])
    note("right_yes_alone", counts(logits, targets)[0])

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


def check(results):
    """Every rank ended with the counts of one process, and with the mean of what the ranks hold by themselves."""
    means = [sum(values) / len(results) for values in zip(*(result["notes"]["own"] for result in results))]
    for result in results:
        for name, mean, got in zip(("accuracy", "precision", "recall", "AUC"), means, result["notes"]["averaged"]):
            assert abs(got - mean) < 1e-9, f"rank {result['rank']}: note averaged: expected {name} {mean}, got {got}"
        got, expected = result["notes"]["right_yes"], result["notes"]["right_yes_alone"]
        assert got == expected, f"rank {result['rank']}: note right_yes: expected {expected}, got {got}"


if __name__ == "__main__":
    main()
