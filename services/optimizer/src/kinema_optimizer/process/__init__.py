"""Processes that solve: a child, workers on other machines, their messages. Entry point: `client.Solver`."""
