"""Render `lab --help`; imports almost nothing, so that it is fast."""

from lab.feature import all_entries

VERBS = {
    "up": ("start a cluster of nodes", "Everyday"),
    "run": ("run a scenario or a script on every rank", "Everyday"),
    "status": ("show clusters and their nodes", "Everyday"),
    "logs": ("show what ranks printed", "Everyday"),
    "show": ("show the result of a run, its steps, and pictures", "Everyday"),
    "explain": ("explain what happened in a run", "Everyday"),
    "down": ("remove a cluster and everything that belongs to it", "Everyday"),
    "exec": ("run a command in a node", "Nodes"),
    "runs": ("list runs, or remove old ones", "Runs"),
    "validate": ("check scenarios without running them", "Scenarios"),
    "doctor": ("check engine, image, kernel, and machine", "Setup"),
}
"""The kernel's own verbs, each with its line of help and its group."""
_GROUPS = {
    "Everyday": ("up", "run", "test", "watch", "status", "logs", "show", "explain", "report", "down"),
    **dict.fromkeys(("Nodes", "Runs", "Scenarios", "Teaching", "Setup", "More"), ()),
}
"""Groups in the order of `lab --help`, with the verbs whose order matters."""


def describe_verb(verb: str) -> str:
    """Return the line of help of an existing verb."""
    return VERBS[verb][0] if verb in VERBS else list_all_verbs()[verb]  # the kernel's own load no features


def list_all_verbs() -> dict[str, str]:
    """Return all verbs, those of features last, each with its line of help."""
    return {verb: text for verb, (text, _) in _all_verbs().items()}


def _all_verbs() -> dict[str, tuple[str, str]]:
    return {**VERBS, **{verb: (text, (*group, "More")[0]) for verb, (_, text, *group) in all_entries("verbs").items()}}


def render_overview() -> str:
    """Render the text of `lab --help`."""
    verbs = _all_verbs()
    lines = []
    for group, first in _GROUPS.items():
        members = [verb for verb in dict.fromkeys([*first, *verbs]) if verb in verbs and verbs[verb][1] == group]
        lines += [f"  {'' if i else group:<11}{verb:<12}{verbs[verb][0]}" for i, verb in enumerate(members)]
    return f"""usage: lab VERB [options]; lab VERB --help shows options; lab help lists topics; lab --version
{chr(10).join(lines)}
exit codes: 0 passed, 1 failed, 2 refused, 3 no engine, 4 hung, 130 interrupted"""
