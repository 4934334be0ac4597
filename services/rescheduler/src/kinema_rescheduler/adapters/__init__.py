"""The outside: the cluster's API and the provider of nodes, each behind a protocol."""
