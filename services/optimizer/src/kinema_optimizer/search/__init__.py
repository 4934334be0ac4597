"""Anytime search for problems of any size: first plans, then rounds of neighborhoods. Entry point: `search.search`."""
