"""The report of a run as one HTML file that needs nothing else: verdict, pictures, timeline, traffic, logs, sources."""
