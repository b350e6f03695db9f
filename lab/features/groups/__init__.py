"""Groups: worlds and groups that some ranks create differently from others, for verdicts and `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="groups",
    hooks={"cannot_meet": "lab.features.groups.findings:cannot_meet"},
    findings={
        "groups": "lab.features.groups.findings:find_world_faults",
        "rendezvous": "lab.features.groups.findings:explain_rendezvous",
    },
)
