"""Export: a trace as tables, and for other tools; a scenario as a job for clusters without the lab."""

from lab.feature import Feature

CHROME = "trace.chrome.json"
FLIGHT_RECORDER = "flight-recorder"

FEATURE = Feature(
    name="export",
    needs=("calls", "dumps", "timeline", "traffic"),
    verbs={
        "trace": (".verb", "show or export what ranks sent each other", "Runs"),
        "export": (".manifests", "write a job for Kubeflow, JobSet, or Slurm", "Scenarios"),
    },
    record_files={
        CHROME: "the trace for https://ui.perfetto.dev and others, from `lab trace --chrome`",
        f"{FLIGHT_RECORDER}/rank_<N>": "the trace for `torchfrtrace`, from `lab trace --flight-recorder`",
    },
)
