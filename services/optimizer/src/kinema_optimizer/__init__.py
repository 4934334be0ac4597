"""Computes the cheapest set of nodes that still runs everything."""
