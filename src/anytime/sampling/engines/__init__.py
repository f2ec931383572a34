"""Engines: what computes the next code and the decoded sample."""
