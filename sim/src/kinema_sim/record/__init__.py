"""The record of what happened in the cluster."""
