"""Presets: which networks and which schedule for which dataset."""
