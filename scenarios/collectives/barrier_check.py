"""Checks the times that `barrier.py` notes."""


def nobody_leaves_early(results):
    last_arrival = max((result["notes"]["arrived"], result["rank"]) for result in results)
    first_leave = min((result["notes"]["left"], result["rank"]) for result in results)
    assert first_leave[0] >= last_arrival[0], (
        f"rank {first_leave[1]} left the barrier {last_arrival[0] - first_leave[0]:.6f} s before rank "
        f"{last_arrival[1]} arrived"
    )
