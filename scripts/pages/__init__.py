"""The generated parts of README and docs: one module per page, and the tables between markers."""
