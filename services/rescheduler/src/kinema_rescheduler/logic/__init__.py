"""What to do next: pure functions of the journal, the cluster state, the limits and the time."""
