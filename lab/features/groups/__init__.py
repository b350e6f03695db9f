"""Groups: worlds and groups that ranks made otherwise than others did, for verdicts and `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="groups",
    hooks={"cannot_meet": "lab.features.groups.findings:cannot_meet"},
    findings={
        "groups": "lab.features.groups.findings:find_world_faults",
        "rendezvous": "lab.features.groups.findings:explain_rendezvous",
    },
)
