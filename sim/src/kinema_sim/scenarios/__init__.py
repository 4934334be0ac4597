"""Seeded starting points of the simulated cluster."""
