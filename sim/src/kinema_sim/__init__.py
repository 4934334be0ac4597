"""A deterministic simulated cluster and cloud."""
