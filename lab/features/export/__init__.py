"""Export: a trace as tables, and for other tools; a scenario as a job for clusters without the lab."""

from lab.feature import Feature

PERFETTO = "trace.pftrace"
CHROME = "trace.chrome.json"
FLIGHT_RECORDER = "flight-recorder"
HTA = "hta"

FEATURE = Feature(
    name="export",
    needs=("calls", "dumps", "stragglers", "timeline", "traffic"),
    verbs={
        "trace": (".verb", "show or export what ranks sent each other", "Runs"),
        "export": (".manifests", "write a job for Kubeflow, JobSet, or Slurm", "Scenarios"),
    },
    record_files={
        PERFETTO: "the trace for https://ui.perfetto.dev, from `lab trace --perfetto`",
        CHROME: "the trace for Chrome and others, from `lab trace --chrome`",
        f"{FLIGHT_RECORDER}/rank_<N>": "the trace for `torchfrtrace`, from `lab trace --flight-recorder`",
        f"{HTA}/rank<N>.json": "the trace for Holistic Trace Analysis, from `lab trace --hta`",
    },
)
