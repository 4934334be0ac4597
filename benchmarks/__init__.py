"""Benchmarks: `python -m benchmarks --out DIR` measures and writes JSON; nothing here asserts a time."""
