"""Simulations of policies: a scenario, run in virtual time once for each policy, and what came of it."""
