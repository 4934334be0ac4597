"""Client of a Kubernetes API server."""
