"""Engines: implementations of the prior's step and of the decoder, for different devices."""
