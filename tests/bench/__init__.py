"""Benchmarks: `make bench [ONLY=name]`, one JSON object a line."""
