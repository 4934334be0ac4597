"""Rules between pods: read from the cluster, then reduced to limits on nodes. Entry point: `reduce.reduce_rules`."""
