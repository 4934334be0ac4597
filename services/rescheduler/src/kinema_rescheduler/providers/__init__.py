"""Providers that boot and delete nodes. Entry point: `open.open_provider`."""
