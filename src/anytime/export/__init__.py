"""Turning a run into a model that others can load."""
