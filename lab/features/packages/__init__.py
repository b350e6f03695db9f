"""Packages: nodes with packages that their image or Python lacks, fetched as wheels on this machine."""

from lab.feature import Feature

FEATURE = Feature(
    name="packages",
    needs=("copy", "image"),
    keys={"requirements": "lab.features.packages.requirements:PackagesKeys"},
    hooks={
        "package_store": "lab.features.packages.stores:package_store",
        "merged_requirements": "lab.features.packages.requirements:merge_requirements",
        "checked_requirements": "lab.features.packages.requirements:checked_requirements",
        "requirements_in": "lab.features.packages.requirements:read_file",
        "requirements_of_script": "lab.features.packages.requirements:read_block",
    },
    on_node="lab.features.packages.on_node",
)
