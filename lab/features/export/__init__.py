"""Export: a trace as tables, and for other tools."""

from lab.feature import Feature

FEATURE = Feature(
    name="export",
    needs=("calls", "dumps", "stragglers", "timeline", "traffic"),
    verbs={
        "trace": (
            "lab.features.export.verb",
            "show what ranks sent each other; write it for Perfetto, Chrome, torchfrtrace or simulators",
        )
    },
)
