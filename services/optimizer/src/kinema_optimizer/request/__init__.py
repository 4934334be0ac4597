"""Objective, limits and headroom of a question, and its restatement in nodes, pods and prices (`restate.framed`)."""
