"""Checks of cluster, prices and broker."""
