"""Compare: the differences between two runs, and between runs and earlier ones."""

from lab.feature import Feature

DIFF_REPORT = "diff.html"

FEATURE = Feature(
    name="compare",
    needs=("html", "calls", "records", "timeline", "traffic"),
    verbs={"diff": (".verb", "show what two runs did differently", "Runs")},
    options={"report": ".verb:REPORT_OPTIONS"},
    record_files={DIFF_REPORT: "this run next to another one, from `lab report --diff`"},
)
