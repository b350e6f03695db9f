"""Node code of grading: a scenario's check reads files of ranks."""
