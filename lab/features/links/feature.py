"""Links: which links between nodes were slow, lost much, or failed for a while, for `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="links",
    findings={
        "kinds": "lab.features.links.findings:LinkKind",
        "words": "lab.features.links.findings:WORDS",
        "explain": "lab.features.links.findings:explain_links",
    },
)
