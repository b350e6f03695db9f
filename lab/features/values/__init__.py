"""Values: results that no inputs give, NaN and outliers that ranks brought, the same values from all ranks."""

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
