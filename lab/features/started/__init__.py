"""Started: processes that scripts start themselves, and that join a process group."""
