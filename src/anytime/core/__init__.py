"""Shared infrastructure: errors, config, storage, random, device, distributed, environment, progress, results."""
