"""Metrics of the whole test set: gather logits and targets under no_grad, and throw the sampler's padding away.

DistributedSampler makes the shares equal: it repeats samples from the front until the number divides by world_size.
Training hardly notices. A metric does: the repeated samples count twice, and the result depends on the number of ranks.
Sample i lies on rank i % world_size (shuffle=False), so the gathered batches are put back in that order, and everything
from len(dataset) on is padding.
"""

import torch
import torch.distributed as dist
from arithmetic import accuracy_precision_recall, area_under_curve, counts
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

try:
    from lab import note  # optional: puts a value into the record of the run
except ImportError:
    note = print

SAMPLES = 101  # a prime: it divides by no number of ranks


def make_test_set():
    random = torch.Generator().manual_seed(4)
    inputs = torch.randn(SAMPLES, 5, generator=random)
    noise = torch.randn(SAMPLES, generator=random)
    return TensorDataset(inputs, (inputs[:, 0] + noise > 0.3).long())


def make_model():
    torch.manual_seed(2)
    model = torch.nn.Linear(5, 1)
    with torch.no_grad():
        model.weight[0, 0] += 1.0  # as if it had learnt something
    return model


def metrics(logits, targets):
    return [*accuracy_precision_recall(*counts(logits, targets)), area_under_curve(logits, targets)]


@torch.no_grad()
def gather_in_order(own):
    """One batch of all ranks, in the order of the data set: the first of each rank, the second of each rank, ..."""
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, own)
    return torch.stack(gathered, dim=1).flatten()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    test_set, model = make_test_set(), make_model()

    sampler = DistributedSampler(test_set, shuffle=False)  # takes rank and world size from the process group
    logits, targets = [], []
    for inputs, target in DataLoader(test_set, batch_size=8, sampler=sampler):  # the last batch is smaller
        with torch.no_grad():
            logits.append(gather_in_order(model(inputs).squeeze(1)))
        targets.append(gather_in_order(target))
    logits, targets = torch.cat(logits), torch.cat(targets)

    right = metrics(logits[: len(test_set)], targets[: len(test_set)])
    with_padding = metrics(logits, targets)  # the usual bug
    inputs, target = test_set.tensors
    alone = metrics(model(inputs).squeeze(1).detach(), target)  # the single process

    if rank == 0:
        print(f"{len(test_set)} samples, {len(logits)} gathered: {len(logits) - len(test_set)} are padding")
        print(f"{'':16}accuracy precision    recall       AUC")
        for name, values in (("one process", alone), ("padding removed", right), ("with padding", with_padding)):
            print(f"{name:16}" + " ".join(f"{value:.6f} " for value in values), flush=True)
    for name, value, true in zip(("accuracy", "precision", "recall", "auc"), right, alone):
        note(name, value)
        note(f"{name}_difference", value - true)
    note("gathered", len(logits))
    note("in_order", torch.equal(targets[: len(test_set)], target))
    note("padding_changes_accuracy", with_padding[0] != alone[0])
    note("padding_changes_auc", with_padding[3] != alone[3])

    dist.barrier()  # rank 0 may host the rendezvous store: nobody leaves before everybody is done
    dist.destroy_process_group()


def check(results):
    """Counts again in plain Python, in another way: AUC by the sum of the positives' places in the sorted logits."""
    test_set, model = make_test_set(), make_model()
    scored = sorted((model(inputs).item(), int(target)) for inputs, target in test_set)
    positives = sum(target for _, target in scored)
    right = sum((logit > 0) == (target == 1) for logit, target in scored)
    right_yes = sum(logit > 0 and target == 1 for logit, target in scored)
    places = sum(place for place, (_, target) in enumerate(scored, start=1) if target == 1)
    expected = {
        "accuracy": right / SAMPLES,
        "precision": right_yes / sum(logit > 0 for logit, _ in scored),
        "recall": right_yes / positives,
        "auc": (places - positives * (positives + 1) / 2) / (positives * (SAMPLES - positives)),
    }
    for result in results:
        for name, value in expected.items():
            got = result["notes"][name]
            assert abs(got - value) < 1e-9, f"rank {result['rank']}: note {name}: expected {value}, got {got}"


if __name__ == "__main__":
    main()
