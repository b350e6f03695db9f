"""Links: links between nodes that are slow, lose many packets, or fail for a while, for `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="links",
    findings={
        "kinds": "lab.features.links.findings:LinkKind",
        "cut": "lab.features.links.findings:find_cut_nodes",
        "connections": "lab.features.links.findings:find_broken_links",
        "explain": "lab.features.links.findings:explain_links",
    },
)
