"""Experiments built, packed, planned and run: in this process, in several, or on a cluster."""
