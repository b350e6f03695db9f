"""Notebook: a result as a notebook shows it."""

from lab.feature import Feature

FEATURE = Feature(
    name="notebook",
    needs=("html", "pictures", "timeline"),
    views={"notebook": "lab.features.notebook.show:result_html"},
)
