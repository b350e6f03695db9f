"""Mistakes in lessons of messages and of groups."""

from __future__ import annotations

from collections.abc import Sequence

from tests.engines.mutations.kinds import Hangs, Mutation, Note

LEFT_RIGHT = "(rank - 1) % world_size, (rank + 1) % world_size"
RIGHT_LEFT = "(rank + 1) % world_size, (rank - 1) % world_size"

MUTATIONS: dict[str, Sequence[Mutation]] = {
    "point_to_point/batch_isend_irecv": [
        Mutation(LEFT_RIGHT, RIGHT_LEFT, Note(0, "seen", [[0, 0], [2, 4], [1, 1]], [[0, 0], [1, 1], [2, 4]])),
        Mutation("world_size - 1)", "world_size - 2)", Note(0, "seen", [[0, 0], [2, 4], [1, 1]], [[0, 0], [2, 4]])),
        Mutation(
            "        held = arriving\n        seen.append(held)",
            "        seen.append(arriving)",
            Note(0, "seen", [[0, 0], [2, 4], [1, 1]], [[0, 0], [2, 4], [2, 4]]),
        ),
    ],
    "point_to_point/isend_irecv": [
        Mutation(LEFT_RIGHT, RIGHT_LEFT, Note(0, "from_left", [21], [11])),
        Mutation("10 * rank + 2", "10 * rank + 1", Note(0, "from_right", [12], [11])),
    ],
    "point_to_point/recv_any_source": [
        Mutation("range(rank)", "range(rank + 1)", Note(0, "total", 51, 84)),
        Mutation("append(sender)", "append(busy)", Note(0, "senders", [1, 2], [0, 1])),
    ],
    "point_to_point/ring_all_reduce": [
        Mutation(
            "chunks[(rank - step - 1)",
            "chunks[(rank - step)",
            Note(0, "sum", [300 + 3 * i for i in range(6)], [200, 201, 2, 3, 104, 105]),
        ),
        Mutation(".copy_(arriving)", ".add_(arriving)", Note(0, "sum", [300 + 3 * i for i in range(6)])),
    ],
    "point_to_point/send_recv": [
        Mutation("token += rank + 1", "token += rank", Note(0, "passed_on", [1], [0])),
        Mutation("src=rank - 1", "src=0", Hangs("rank 2 waited in recv at send_recv.py")),
    ],
    "point_to_point/tags": [
        Mutation("recv(second, src=0, tag=2)", "recv(first, src=0, tag=2)", Note(1, "second", [201], [0])),
    ],
    "groups/device_mesh": [
        Mutation('("node", "local")', '("local", "node")', Note(0, "along_local", [1], [2])),
    ],
    "groups/group_source": [
        Mutation("group_src=0", "group_src=1", Note(1, "by_group", [10], [20])),
        Mutation("src=world_size - 1", "group_src=0", Note(1, "by_global", [20], [10])),
    ],
    "groups/mesh_by_hand": [
        Mutation("(row_sum, group=row_group)", "(row_sum, group=column_group)", Note(0, "row_sum", [1], [2])),
    ],
    "groups/new_group": [
        Mutation(", group=mine", "", Note(0, "sum", [2], [3])),
        Mutation("(0, world_size, 2)", "(0, world_size - 1, 2)", Note(0, "sum", [2], [0])),
    ],
    "groups/outside_the_group": [
        Mutation("max(1, world_size - 1)", "world_size", Note(0, "x", [1], [3])),
    ],
}
