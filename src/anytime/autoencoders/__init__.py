"""Ordered autoencoders: from data to codes, most important first, and back."""
