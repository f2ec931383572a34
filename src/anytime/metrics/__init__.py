"""Measurements of models: reconstruction error, code statistics, FID, KID, precision and recall, audio metrics, latency."""
