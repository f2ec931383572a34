"""Turning data into ordered codes and back."""
