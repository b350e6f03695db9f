"""Timeline: lanes of ranks, colours of ranks and operations, and shapes of SVG, for all views that draw."""

from lab.feature import Feature

FEATURE = Feature(name="timeline")
