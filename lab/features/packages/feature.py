"""Packages: nodes with packages that their image or Python lacks, fetched as wheels on this machine."""

from lab.feature import Feature

FEATURE = Feature(name="packages", hooks={"package_store": "lab.features.packages.stores:package_store"})
