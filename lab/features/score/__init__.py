"""Score: verdicts held against what was broken on purpose."""
