"""Advice: what to change where the error of a script does not say it, for verdicts and `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="advice",
    views={"advice_of_result": ".advice:find_advice"},
    findings={"kinds": ".advice:AdviceKind", "explain": ".advice:explain_advice"},
)
