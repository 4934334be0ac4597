"""Recordings, and replays of them."""
