"""torchrun: an agent of `torch.distributed.run` on each node; they meet at the run's store on the first node."""

from __future__ import annotations

from lab.launcher.protocol import Layout, Starter
from lab.node.messages.agent import PYTHON, STUB
from lab.words import plural

_ENTRY = "torch.distributed.run:main"
_RENDEZVOUS = {
    "is_host": "0",  # the agent of the lab has the store there before anybody asks
    "keep_alive_interval": "2",
    "keep_alive_max_attempt": "3",
}
"""Three missed signs of life are the end of a node: 6 s, where torchrun's own default is 15 s."""
_A_STORE_FOR_EACH_ATTEMPT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Else an attempt finds the addresses of the one before it in the store, and gloo does not connect."""


class Launcher:
    """The agents decide which rank is where."""

    plans_ranks = False
    one_user = False

    def refusal(self, layout: Layout) -> str:
        """What there is too little of."""
        least, most = _size(layout)
        nodes = len(layout.addresses)
        if least > nodes:
            return f"torchrun waits for {plural(least, 'node')} (min_nodes), and the run has {nodes}"
        if least > most:
            return f"torchrun waits for {plural(least, 'node')} (min_nodes), and takes no more than {most} (max_nodes)"
        return ""

    def starters(self, layout: Layout) -> tuple[Starter, ...]:
        """An agent on each node."""
        told = layout.settings.told
        least, most = _size(layout)
        rendezvous = {**_RENDEZVOUS, "last_call_timeout": str(told.last_call_s)}
        env = {**layout.env, **_A_STORE_FOR_EACH_ATTEMPT}
        return tuple(
            Starter(
                node=f"node{node_rank}",
                argv=(
                    "torchrun",
                    *("--nnodes", f"{least}:{most}", "--nproc-per-node", str(layout.nproc_per_node)),
                    *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{layout.addresses[0]}:{layout.port}"),
                    *("--rdzv-id", layout.run),
                    *("--rdzv-conf", ",".join(f"{name}={value}" for name, value in rendezvous.items())),
                    *("--local-addr", address, "--max-restarts", str(told.max_restarts)),
                    *("--monitor-interval", f"{told.monitor_interval_s:g}"),
                    *("--no-python", PYTHON, "-I", "-S", "-E", STUB, *layout.argv),
                ),
                env=env,
                entry=_ENTRY,
            )
            for node_rank, address in enumerate(layout.addresses)
        )

    def further(self, asking: Starter, line: str) -> Starter | None:
        """Each agent starts workers on its own node only."""
        return None


def _size(layout: Layout) -> tuple[int, int]:
    nodes, told = len(layout.addresses), layout.settings.told
    return told.min_nodes or nodes, told.max_nodes or max(nodes, told.min_nodes or 0)
