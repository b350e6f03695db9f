"""The zygote of a cluster of containers, in a container of its own."""
