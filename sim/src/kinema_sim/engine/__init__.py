"""The deterministic core: virtual time, the object store and what identifies objects."""
