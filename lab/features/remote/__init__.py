"""Remote: streams to containers of Docker engines that are behind TLS or ssh."""

from lab.feature import Feature

FEATURE = Feature(name="remote", hooks={"remote_stream": ".streams:open_stream"})
