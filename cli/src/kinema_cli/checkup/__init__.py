"""What `kinema doctor` looks at, and `kinema up` before it starts anything."""
