"""Carries out an accepted plan without taking a service down."""
