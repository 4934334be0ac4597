"""Requests to the Kubernetes API server, all under the fence. Entry point: `writer.KubernetesWriter`."""
