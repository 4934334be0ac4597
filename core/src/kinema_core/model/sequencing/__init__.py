"""Sequencing."""
