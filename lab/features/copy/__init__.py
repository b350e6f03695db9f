"""Copy: files and folders to and from running nodes."""

from lab.feature import Feature

FEATURE = Feature(
    name="copy",
    verbs={"cp": ("lab.features.copy.verb", "copy files and folders to and from a node", "Nodes")},
    hooks={
        "pack_tar": "lab.features.copy.archive:pack_tar",
        "unpack_tar": "lab.features.copy.archive:unpack_tar",
    },
)
