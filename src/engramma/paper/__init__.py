"""What the paper printed."""
