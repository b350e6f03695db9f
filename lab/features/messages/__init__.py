"""Messages: point-to-point messages that cannot come, for verdicts and `lab explain`."""
