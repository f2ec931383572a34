"""Encoder and decoder networks for images and audio."""
