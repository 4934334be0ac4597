"""How Kinema reaches a Kubernetes API server."""
