"""Autoregressive models of the codes."""
