"""What every other package may import: errors, configs, files, randomness, devices, progress, results."""
