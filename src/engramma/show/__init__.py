"""What is shown, from records only: tables, figures, the report."""
