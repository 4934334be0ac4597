"""Decisions of an execution from journal, cluster state and time. Entry point: `decide.decide`."""
