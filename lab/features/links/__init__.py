"""Links: links between nodes that are slow, lose many packets, or fail for a while, for `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="links",
    findings={
        "kinds": ".findings:LinkKind",
        "cut": ".findings:find_cut_nodes",
        "connections": ".findings:find_broken_links",
        "explain": ".findings:explain_links",
    },
)
