"""Packages: nodes with packages that their image or Python lacks, fetched as wheels on this machine."""

from lab.feature import Feature

FEATURE = Feature(
    name="packages",
    needs=("copy", "image"),
    keys={"requirements": ".requirements:PackagesKeys"},
    hooks={
        "package_store": ".stores:package_store",
        "merged_requirements": ".requirements:merge_requirements",
        "checked_requirements": ".requirements:checked_requirements",
        "requirements_in": ".requirements:read_file",
        "requirements_of_script": ".requirements:read_block",
    },
    on_node=".on_node",
)
