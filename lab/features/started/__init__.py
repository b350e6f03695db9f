"""Started: processes that scripts start and that are the ranks of a run; threads that ended with an error."""

from lab.feature import Feature

FEATURE = Feature(
    name="started",
    hooks={
        "blame_starter": ".started:blame_starter",
        "find_started": ".started:find_started",
        "outlived_reason": ".started:outlived_reason",
    },
    findings={"kinds": ".started:StartedKind", "explain": ".started:explain_started"},
)
