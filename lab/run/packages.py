"""Whether a cluster that is up has the packages that a scenario needs."""

from __future__ import annotations

from collections.abc import Sequence

from lab.engine.protocol import Engine
from lab.errors import ClusterUnfit
from lab.plan.cluster import ClusterInfo
from lab.spec.scenario import Scenario
from lab.words import listing

_EVERY_NODE_HAS = "torch"


def lacking(engine: Engine, cluster: ClusterInfo, requirements: Sequence[str]) -> tuple[str, ...]:
    """Those of some requirements that the nodes do not meet; they are asked only if the cluster was not made for them.

    Raises:
        LabError: the nodes do not say what they have.
    """
    known = {*cluster.shape.requirements, _EVERY_NODE_HAS}
    open_ones = [one for one in requirements if one not in known]
    if not open_ones:
        return ()
    from lab.engine.packages import package_store

    return package_store(engine).lacking(cluster, open_ones)


def refuse_lacking(engine: Engine, cluster: ClusterInfo, scenario: Scenario) -> None:
    """Refuse a cluster whose nodes lack a package: nothing is installed into nodes that others may use.

    Raises:
        ClusterUnfit: one is lacking.
    """
    missing = lacking(engine, cluster, scenario.requirements)
    if missing:
        raise ClusterUnfit(
            f"{scenario.name} needs {listing(missing)}, which cluster {cluster.name} does not have",
            "`lab down`, then run it without a cluster or after `lab up --requirements FILE`; or use another --name",
        )
