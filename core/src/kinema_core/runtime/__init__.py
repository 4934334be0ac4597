"""What makes a service run: bus, clock, serve loop, health, logs, settings. Knows no word of the domain."""
