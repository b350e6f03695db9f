"""Launchers: torchrun and mpirun instead of the lab's own agents."""

from lab.feature import Feature

FEATURE = Feature(
    name="launchers",
    launchers={"torchrun": ".launchers:TorchrunLauncher", "mpirun": ".launchers:MpirunLauncher"},
    hooks={"with_attempts": ".findings:with_attempts", "judge_starters": ".findings:judge_starters"},
    findings={"kinds": ".findings:LauncherKind", "explain": ".findings:explain_attempts"},
)
