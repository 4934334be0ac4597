"""Moves of pods: by surge, eviction or rolling update, into free room only. Entry point: `scheduling.advance`."""
