"""Runtime of a service: bus, clock, serve loop, health, logs, settings. Knows no word of the domain."""
