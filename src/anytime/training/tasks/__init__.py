"""Tasks: what each stage optimises."""
