"""Metrics and logs: what a person on call sees."""
