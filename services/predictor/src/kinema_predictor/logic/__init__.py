"""Forecast of requests from usage: history, regression and the bounded step. Entry point: `forecast.forecasts`."""
