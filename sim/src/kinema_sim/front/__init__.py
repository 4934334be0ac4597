"""The HTTP front: the Kubernetes API, the cloud API and the simulator API on one port."""
