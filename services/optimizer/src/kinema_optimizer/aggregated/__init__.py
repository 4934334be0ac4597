"""Aggregated."""
