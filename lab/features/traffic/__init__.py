"""Traffic: how many bytes ranks sent each other, and the bandwidth of each operation, for all views that show it."""

from lab.feature import Feature

FEATURE = Feature(name="traffic", needs=("values",))
