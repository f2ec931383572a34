"""Sampling codes one at a time, within a budget of codes, time or interruption."""
