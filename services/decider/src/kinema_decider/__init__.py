"""Decides whether a proposed plan pays and is still right."""
