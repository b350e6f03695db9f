"""A plot in plain text."""


def bars(seconds_by_name, width=50):
    """One line for each time, the longest `width` characters wide."""
    longest = max(seconds_by_name.values())
    for name, seconds in seconds_by_name.items():
        yield f"{name:>22} | {'#' * max(1, round(width * seconds / longest)):{width}} {seconds * 1000:7.1f} ms"
