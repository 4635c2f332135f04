"""Prometheus metrics of a run, while it goes on."""
