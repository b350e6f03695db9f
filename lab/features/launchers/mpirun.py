"""mpirun: MPICH's `mpiexec` on the first node; the agents start the proxies that it asks for, so nobody needs ssh."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import PurePath

from lab.node.messages.agent import PYTHON
from lab.node.rank import groups
from lab.spec.launching import Layout, Starter

_ASKS = "HYDRA_LAUNCH: "
"""So begins a line of `mpiexec -launcher manual` that is the command of a proxy, to be started on its node."""
_PROXY, _NUMBER = "hydra_pmi_proxy", "--proxy-id"
_MPICH = {
    "MPIR_CVAR_CH4_CMA_ENABLE": "0",  # one process reads another's memory: no worker of the lab may
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",  # who waits makes room for who computes: nodes share cores
}
_MODULES = ("mpi4py", "torch_mpi")
"""What PyTorch needs for the backend `mpi`."""


class MpirunLauncher:
    """Ranks are where the plan has them: `mpiexec` fills one node after the other."""

    declares = ""
    plans_ranks = True

    def refusal(self, layout: Layout) -> str:
        """It starts anything."""
        return ""

    def starters(self, layout: Layout) -> tuple[Starter, ...]:
        """`mpiexec` itself."""
        hosts = ",".join(f"{address}:{layout.nproc_per_node}" for address in layout.addresses)
        argv = (
            *("mpiexec", "-launcher", "manual", "-localhost", layout.addresses[0], "-hosts", hosts),
            *("-genvnone", "-wdir", "/"),  # each proxy has the variables of its own node, and its agent the folder
            *("-n", str(len(layout.addresses) * layout.nproc_per_node)),
            *(PYTHON, *layout.argv),
        )
        modules = _MODULES if layout.env.get(groups.BACKEND_VARIABLE) == "mpi" else ()
        return (Starter(node="node0", argv=argv, env={**_MPICH, **layout.env}, modules=modules),)

    def further(self, asking: Starter, line: str) -> Starter | None:
        """The proxy that a line asks for, which then starts the workers of its node."""
        if not line.startswith(_ASKS):
            return None
        argv = _words(line.removeprefix(_ASKS))
        number = dict(pairwise(argv)).get(_NUMBER, "")
        if not number.isdecimal() or PurePath(argv[0]).name != _PROXY:
            return None
        return Starter(node=f"node{int(number)}", argv=argv, env=asking.env)


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError:  # a quotation mark without its other half
        return ()
