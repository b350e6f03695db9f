"""Groups: worlds and groups that some ranks create differently from others, for verdicts and `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="groups",
    hooks={"cannot_meet": ".findings:cannot_meet"},
    findings={
        "groups": ".findings:find_world_faults",
        "rendezvous": ".findings:explain_rendezvous",
        "stand_off": ".findings:find_other_groups",
    },
)
