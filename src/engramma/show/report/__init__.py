"""The report: one HTML page with everything in it."""
