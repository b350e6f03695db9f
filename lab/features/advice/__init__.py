"""Advice: what to change where the error of a script does not say it, for verdicts and `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="advice",
    views={"advice_of_result": "lab.features.advice.advice:find_advice"},
    findings={
        "kinds": "lab.features.advice.advice:AdviceKind",
        "explain": "lab.features.advice.advice:explain_advice",
    },
)
