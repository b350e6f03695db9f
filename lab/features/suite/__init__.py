"""Suite: many scenarios on parallel warm clusters, and reports of their outcomes."""

from lab.feature import Feature

SUITE_REPORT = "suite.html"
"""In the folder of runs."""

FEATURE = Feature(
    name="suite",
    needs=("compare", "html", "records"),
    verbs={"test": (".verb", "run many scenarios in parallel, with reports", "Everyday")},
    options={"report": ".page"},
    views={"suite": ".page:write_suite"},
    exports={"run_suite": ".run:run_suite"},
)
