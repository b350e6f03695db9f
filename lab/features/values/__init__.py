"""Values: results that no inputs give, NaN and outliers that ranks brought, the same values from all ranks."""

from lab.feature import Feature

FEATURE = Feature(
    name="values",
    hooks={"wrong_results": "lab.features.values.findings:wrong_results"},
    findings={
        "kinds": "lab.features.values.findings:ValueKind",
        "results": "lab.features.values.findings:find_wrong_results",
        "values": "lab.features.values.findings:find_odd_values",
        "hints": "lab.features.values.findings:find_same_values",
    },
)
