"""Forecasts of usage for many workloads at once: clean series, models, back-test, and the choice between models.

Pure functions of arrays. Row i of an answer depends on row i of the input only, so that a batch may be cut anywhere.
Entry points: `cleaning.clean`, `competition.compete`, `competition.band`.
"""
