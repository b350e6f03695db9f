"""Values: results that do not follow from the inputs, NaN, and outliers in inputs, and equal inputs of all ranks."""

from lab.feature import Feature

FEATURE = Feature(
    name="values",
    hooks={"check_results": "lab.features.values.findings:check_results"},
    findings={
        "kinds": "lab.features.values.findings:ValueKind",
        "results": "lab.features.values.findings:find_unexpected_results",
        "values": "lab.features.values.findings:find_spoiled_reductions",
        "hints": "lab.features.values.findings:find_same_values",
    },
)
