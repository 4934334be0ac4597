"""Counts of pods per class and node: the dense form of the instance, and branch and bound on it."""
