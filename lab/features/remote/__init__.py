"""Remote: streams to containers of Docker engines that are behind TLS or ssh."""

from lab.feature import Feature

FEATURE = Feature(name="remote", hooks={"remote_stream": "lab.features.remote.streams:open_stream"})
