"""Closed-loop load models of the two example applications."""
