"""Image: build and pull images of nodes; list and remove images and environments with packages."""

from lab.feature import Feature

FEATURE = Feature(
    name="image",
    needs=("copy",),
    verbs={"image": (".verb", "build the node image; list and remove images of packages", "Setup")},
    hooks={"make_image": ".make:make_image"},
)
