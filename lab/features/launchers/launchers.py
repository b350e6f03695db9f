"""Launchers: torchrun, an agent of `torch.distributed.run` on each node, and mpirun."""

from __future__ import annotations

import shlex
from contextlib import suppress
from itertools import pairwise
from pathlib import PurePath

from lab.frozen import Frozen
from lab.node.messages.agent import PYTHON
from lab.node.rank import groups
from lab.spec import kinds
from lab.spec.declare import key_field
from lab.spec.launching import RESTARTS, Launcher, Layout, Starter
from lab.words import format_count

_RENDEZVOUS = {
    "is_host": "0",  # the lab's agent starts the store before anyone connects
    "keep_alive_interval": "2",
    "keep_alive_max_attempt": "3",
}
"""A node is lost after three missed keep-alives: 6 s, where torchrun's own default is 15 s."""
_A_STORE_FOR_EACH_ATTEMPT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Otherwise an attempt finds addresses of the previous one in the store, and gloo does not connect."""


_NODES = kinds.whole_number(1, 1024)


class Torchrun(Frozen):
    """Settings of torchrun's agents."""

    min_nodes: int | None = key_field(None, _NODES, "min_nodes: 2", "all nodes of the run")
    """Start with this many nodes, and continue with them when others are lost."""
    max_nodes: int | None = key_field(None, _NODES, "max_nodes: 3", "all nodes of the run")
    """Most nodes at a time."""
    max_restarts: int = key_field(0, RESTARTS, "max_restarts: 3")
    """How often to restart the workers after a failure."""
    monitor_interval_s: float = key_field(
        0.1, kinds.duration_kind(3600), "monitor_interval: 0.5s", "`0.1s`", name="monitor_interval"
    )
    """How often each agent polls its workers."""
    last_call_s: int = key_field(2, kinds.whole_number(1, 3600), "last_call: 30", name="last_call")
    """Seconds that enough agents wait for more; torchrun's default is 30."""

    def problem(self) -> str:
        """Return a contradiction in the settings; empty if there is none."""
        if self.min_nodes and self.max_nodes and self.min_nodes > self.max_nodes:
            return f"min_nodes is {self.min_nodes}, more than max_nodes, {self.max_nodes}"
        return ""


class TorchrunLauncher(Launcher):
    """The agents decide which rank runs on which node."""

    declares = "lab.features.launchers.launchers:Torchrun"
    plans_ranks = False

    def refusal(self, layout: Layout) -> str:
        """Explain why the run has too few nodes; empty if it has enough."""
        least, most = _size(layout)
        nodes = len(layout.addresses)
        if least > nodes:
            return f"torchrun waits for {format_count(least, 'node')} (min_nodes), but the run has {nodes}"
        if least > most:
            count = format_count(least, "node")
            return f"torchrun waits for {count} (min_nodes), but accepts at most {most} (max_nodes)"
        return ""

    def starters(self, layout: Layout) -> tuple[Starter, ...]:
        """Return an agent for each node."""
        settings = _torchrun_settings(layout)
        least, most = _size(layout)
        rendezvous = {**_RENDEZVOUS, "last_call_timeout": str(settings.last_call_s)}
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
                    *("--local-addr", address, "--max-restarts", str(settings.max_restarts)),
                    *("--monitor-interval", f"{settings.monitor_interval_s:g}"),
                    *layout.argv,
                ),
                env=env,
            )
            for node_rank, address in enumerate(layout.addresses)
        )


def _size(layout: Layout) -> tuple[int, int]:
    nodes, settings = len(layout.addresses), _torchrun_settings(layout)
    return settings.min_nodes or nodes, settings.max_nodes or max(nodes, settings.min_nodes or 0)


def _torchrun_settings(layout: Layout) -> Torchrun:
    settings: Torchrun = layout.settings.settings or Torchrun()
    return settings


_REQUEST_PREFIX = "HYDRA_LAUNCH: "
"""Prefix of a line of `mpiexec -launcher manual`: the command of a proxy to start on its node."""
_PROXY, _NUMBER = "hydra_pmi_proxy", "--proxy-id"
_MPICH = {
    "MPIR_CVAR_CH4_CMA_ENABLE": "0",  # it reads other processes' memory, which workers may not do
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",  # waiting ranks yield to computing ones: nodes share cores
}
_MODULES = ("mpi4py", "torch_mpi")
"""Modules that PyTorch needs for the backend `mpi`."""


class MpirunLauncher(Launcher):
    """Ranks run where the plan puts them: `mpiexec` fills one node after the other."""

    declares = ""

    def starters(self, layout: Layout) -> tuple[Starter, ...]:
        """Return `mpiexec` itself."""
        hosts = ",".join(f"{address}:{layout.nproc_per_node}" for address in layout.addresses)
        argv = (
            *("mpiexec", "-launcher", "manual", "-localhost", layout.addresses[0], "-hosts", hosts),
            *("-genvnone", "-wdir", "/"),  # each proxy has its node's variables, and its agent knows the folder
            *("-n", str(len(layout.addresses) * layout.nproc_per_node)),
            *(PYTHON, *layout.argv),
        )
        modules = _MODULES if layout.env.get(groups.BACKEND_VARIABLE) == "mpi" else ()
        return (Starter(node="node0", argv=argv, env={**_MPICH, **layout.env}, modules=modules),)

    def find_requested_starter(self, asking: Starter, line: str) -> Starter | None:
        """Return the proxy that a line requests, which then starts the workers of its node."""
        if not line.startswith(_REQUEST_PREFIX):
            return None
        argv = _words(line.removeprefix(_REQUEST_PREFIX))
        number = dict(pairwise(argv)).get(_NUMBER, "")
        if not number.isdecimal() or PurePath(argv[0]).name != _PROXY:
            return None
        return Starter(node=f"node{int(number)}", argv=argv, env=asking.env)


def _words(command: str) -> tuple[str, ...]:
    with suppress(ValueError):  # an unclosed quotation mark
        return tuple(shlex.split(command))
    return ()
