"""The paper: the numbers it printed, and its tables and figures as studies."""
