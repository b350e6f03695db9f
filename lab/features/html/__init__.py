"""HTML: a run as one self-contained page, and a result in a notebook."""

from lab.feature import Feature

REPORT = "report.html"

FEATURE = Feature(
    name="html",
    needs=("calls", "pictures", "records", "stragglers", "timeline", "traffic"),
    verbs={"report": (".verb", "write a run as one HTML page", "Everyday")},
    options={"run": ".verb:RUN_OPTIONS"},
    views={"notebook": ".page:result_html"},
    record_files={REPORT: "the run as one page, from `lab report`"},
)
