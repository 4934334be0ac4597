"""Kubernetes API of the simulated cluster, without HTTP."""
