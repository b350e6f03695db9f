"""Started: processes that scripts start and that are the ranks of a run; threads that ended with an error."""

from lab.feature import Feature

FEATURE = Feature(
    name="started",
    hooks={
        "blame_starter": "lab.features.started.started:blame_starter",
        "find_started": "lab.features.started.started:find_started",
        "outlived_reason": "lab.features.started.started:outlived_reason",
    },
    findings={
        "kinds": "lab.features.started.started:StartedKind",
        "explain": "lab.features.started.started:explain_started",
    },
)
