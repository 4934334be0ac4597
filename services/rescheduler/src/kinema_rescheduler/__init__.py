"""Execution of an accepted plan without an outage of any service."""
