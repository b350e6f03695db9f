"""Watch: a run in progress, in a terminal or on a page."""

from lab.feature import Feature

FEATURE = Feature(
    name="watch",
    needs=("html", "pictures", "timeline"),
    views={"whereabouts": "lab.features.watch.tail:Whereabouts"},
    verbs={
        "watch": ("lab.features.watch.verb", "watch a run live: what every rank does, who waits for whom", "Everyday")
    },
    on_node="lab.features.watch.on_node",
)
