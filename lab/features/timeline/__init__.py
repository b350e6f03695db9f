"""Timeline: lanes of ranks, colors of ranks and operations, and SVG shapes, for all views that draw."""

from lab.feature import Feature

FEATURE = Feature(name="timeline")
