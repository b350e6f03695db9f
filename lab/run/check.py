"""The scenario's own check of the results, in the first node of its run."""

from __future__ import annotations

import time
from typing import Any

from lab.diagnosis.facts import RankFacts
from lab.node.messages.agent import Check, Exited
from lab.plan.plan import Plan
from lab.plan.present import HOST
from lab.run.collect import Collector
from lab.run.conversation import Conversation
from lab.run.ship import file_messages
from lab.words import format_duration


def check(
    plan: Plan,
    agents: Conversation,
    collector: Collector,
    reference: str,
    results: list[dict[str, Any]],
    deadline_s: float,
    archive: bytes = b"",
) -> RankFacts:
    """Run the check `file.py:function`, after all ranks have ended and before anything is removed.

    `archive` is the folder that it is in, where that is not the one that was shipped to the ranks.
    """
    facts = collector.facts.rank(-1)
    if HOST in agents.alive:
        files = file_messages(plan.run, archive, for_check=True) if archive else ()
        agents.say(HOST, *files, Check(plan.run, reference, results, dict(plan.workers[0].env)))
        if not agents.listen_for(lambda: facts.over, deadline_s):
            error = f"the check did not end within {format_duration(deadline_s)}"
            collector.fact(Exited(time=time.time(), rank=-1, node=HOST, error=error))
    return facts
