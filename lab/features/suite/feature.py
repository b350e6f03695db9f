"""Suite: many scenarios on warm clusters side by side, and reports of what came of them."""

from lab.feature import Feature

FEATURE = Feature(
    name="suite",
    verbs={
        "test": (
            "lab.features.suite.verb",
            "run many scenarios on warm clusters side by side; reports for people and CI",
        )
    },
    exports={"run_suite": "lab.features.suite.start:run_suite"},
)
