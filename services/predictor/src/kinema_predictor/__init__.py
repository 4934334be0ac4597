"""Forecasts what workloads will use."""
