"""Snapshots of a cluster, from files and live."""
