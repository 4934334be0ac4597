"""Ordering of a plan's moves into waves that break no rule on the way. Entry point: `waves.order_transition`."""
