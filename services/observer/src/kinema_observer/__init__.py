"""Watches a Kubernetes cluster and publishes its state as events."""
