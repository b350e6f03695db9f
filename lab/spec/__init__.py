"""What a scenario is: frozen data, and the validation that stands at its only door (`lab.spec.load`)."""
