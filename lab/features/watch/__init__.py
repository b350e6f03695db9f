"""Watch: a run in progress, in a terminal or on a page."""

from lab.feature import Feature

FEATURE = Feature(
    name="watch",
    needs=("html", "pictures", "timeline"),
    views={"whereabouts": "lab.features.watch.tail:Whereabouts"},
    verbs={
        "watch": (
            "lab.features.watch.verb",
            "show a run as it happens: what every rank does now, who waits for whom, step by step if asked",
        )
    },
    on_node="lab.features.watch.on_node",
)
