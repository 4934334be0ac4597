"""The cluster, its resources and plans: pure values and functions. No I/O, no clock, no randomness."""
