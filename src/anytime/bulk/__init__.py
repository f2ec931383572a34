"""Bulk sampling: millions of samples in shards with a manifest, by one process, several ranks or a Ray cluster."""
