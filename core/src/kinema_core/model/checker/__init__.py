"""Checker."""
