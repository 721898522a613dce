"""The search for a strength: what is searched, how, and how a value is chosen from what was found."""
