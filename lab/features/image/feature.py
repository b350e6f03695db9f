"""Image: build the image of the nodes, list and remove what was made of packages."""

from lab.feature import Feature

FEATURE = Feature(
    name="image",
    verbs={
        "image": ("lab.features.image.verb", "build the image of the nodes; list and remove what was made of packages"),
    },
)
