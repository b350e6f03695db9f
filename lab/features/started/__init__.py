"""Started: processes and threads that scripts start themselves."""
