"""Faults: processes killed at any moment, and inputs that nobody would write by hand."""
