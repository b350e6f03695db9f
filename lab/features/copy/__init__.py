"""Copy: files and folders to and from running nodes."""

from lab.feature import Feature

FEATURE = Feature(
    name="copy",
    verbs={"cp": (".verb", "copy files and folders to and from a node", "Nodes")},
    hooks={"pack_tar": ".archive:pack_tar", "unpack_tar": ".archive:unpack_tar"},
)
