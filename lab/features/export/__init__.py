"""Export: a trace as tables, and for other tools."""

from lab.feature import Feature

PERFETTO = "trace.pftrace"
CHROME = "trace.chrome.json"
FLIGHT_RECORDER = "flight-recorder"
CHAKRA = "chakra"
HTA = "hta"

FEATURE = Feature(
    name="export",
    needs=("calls", "dumps", "stragglers", "timeline", "traffic"),
    verbs={
        "trace": (
            "lab.features.export.verb",
            "show what ranks sent each other; write it for Perfetto, Chrome, torchfrtrace or simulators",
        )
    },
    record_files={
        PERFETTO: "the trace for https://ui.perfetto.dev, once `lab trace --perfetto` has written it",
        CHROME: "the trace for Chrome and others, once `lab trace --chrome` has written it",
        f"{FLIGHT_RECORDER}/rank_<N>": "the trace for `torchfrtrace`, once `lab trace --flight-recorder` has written "
        "it",
        f"{CHAKRA}/lab.<N>.et": "the trace for simulators, once `lab trace --chakra` has written it; groups.json "
        "beside them says which ranks are in which group",
        f"{HTA}/rank<N>.json": "the trace for Holistic Trace Analysis, once `lab trace --hta` has written it",
    },
)
