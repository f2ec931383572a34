"""Bundled models, and the registry that finds a model by name or path."""
