"""Advice: what to change where the error of a script does not say it, for verdicts and `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="advice",
    hooks={"find_unshipped": ".advice:find_unshipped"},
    views={"advice_of_result": ".advice:find_advice"},
    findings={"kinds": ".advice:AdviceKind", "explain": ".advice:explain_advice"},
)
