"""Values: results that do not follow from the inputs, NaN, and outliers in inputs, and equal inputs of all ranks."""

from lab.feature import Feature

FEATURE = Feature(
    name="values",
    findings={
        "kinds": ".findings:ValueKind",
        "results": ".findings:find_unexpected_results",
        "values": ".findings:find_spoiled_reductions",
        "hints": ".findings:find_same_values",
    },
)
