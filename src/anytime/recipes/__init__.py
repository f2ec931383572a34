"""Recipes: one preset per dataset, and `build_config`, which builds the config of a run (sources: docs/deviations.md)."""
