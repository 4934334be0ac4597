"""Deciding again on recorded events."""
