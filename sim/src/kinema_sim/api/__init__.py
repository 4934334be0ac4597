"""What the Kubernetes API does with a request, without HTTP."""
