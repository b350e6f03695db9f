"""Messages: point-to-point messages that cannot arrive, for verdicts and `lab explain`."""

from lab.feature import Feature

FEATURE = Feature(
    name="messages",
    needs=("mismatches",),
    findings={"stand_off": ".findings:find_stand_off"},
    hooks={"blame_side": ".findings:blame_side"},
)
