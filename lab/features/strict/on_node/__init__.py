"""Node code of strict clusters."""

from __future__ import annotations

HOOKS = {"network": "network:confine_network", "succession": "succession:begin_succession"}
