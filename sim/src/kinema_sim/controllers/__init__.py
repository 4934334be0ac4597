"""Controllers: each moves the cluster towards its desired state, in virtual time."""
