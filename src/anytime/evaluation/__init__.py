"""Measuring what a model does."""
