"""Watch: a run in progress, in a terminal or on a page."""

from lab.feature import Feature

FEATURE = Feature(
    name="watch",
    needs=("html", "pictures", "timeline"),
    views={"whereabouts": ".now:Whereabouts"},
    verbs={"watch": (".verb", "watch a run live: what every rank does, who waits for whom", "Everyday")},
    on_node=".on_node",
)
