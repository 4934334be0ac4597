"""Pure logic of the observer: reading Kubernetes objects, and deciding when an iteration begins."""
