"""What the optimizer knows of placement, without I/O, clock, randomness or solver."""
