"""What runs found, on disk: whole or not at all, checked, and safe from several processes at once."""
