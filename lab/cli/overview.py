"""Render `lab --help`; imports almost nothing, so that it is fast."""

from lab.feature import list_verbs

VERBS = {
    "up": "start a cluster of nodes",
    "run": "run a scenario or a script on every rank and say passed or failed",
    "status": "show clusters and their nodes",
    "logs": "show what ranks printed",
    "exec": "run a command in a node",
    "down": "remove a cluster and everything that belongs to it",
    "runs": "list runs",
    "show": "show the result of a run",
    "explain": "say what happened in a run: who waited for whom, who differed, where time went",
    "validate": "check scenarios without running them",
    "doctor": "look at engine, image, kernel and machine",
}
"""The kernel's own verbs, each with its line of help."""


def list_all_verbs() -> dict[str, str]:
    """Return all verbs, those of features last, each with its line of help."""
    return {**VERBS, **{verb: text for verb, (_, text) in list_verbs().items()}}


def render_overview() -> str:
    """Render the text of `lab --help`."""
    return f"""usage: lab VERB [options]

A distributed-PyTorch laboratory.

verbs:
{chr(10).join(f"  {name:<12}{text}" for name, text in list_all_verbs().items())}

options:
  -h, --help  show this help message and exit
  --version   show program's version number and exit

examples:
  lab up --nodes 3                                start three nodes
  lab run scenarios/scatter.yaml                  run a scenario on them (or on nodes of its own)
  lab run train.py --nodes 2 -- --epochs 3        run any script
  lab down                                        remove them

exit codes: 0 passed, 1 failed, 2 refused (bad usage, scenario or cluster), 3 no engine, 4 hung, 130 interrupted

`lab VERB --help` says more; `lab help` lists topics."""
