"""Remote: streams to containers of Docker engines that are behind TLS or ssh."""
