"""One-time preparation of broker and cluster."""
