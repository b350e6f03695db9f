"""Pictures of data movement: what each call did with the data of all ranks."""

from lab.feature import Feature

FEATURE = Feature(
    name="pictures",
    needs=("timeline", "values"),
    options={"show": ".option"},
    views={"run_pictures": ".text:run_pictures"},
)
