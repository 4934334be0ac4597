"""Broker and services as processes of this machine."""
