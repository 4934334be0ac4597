"""The Kubernetes API as the observer reads it."""
