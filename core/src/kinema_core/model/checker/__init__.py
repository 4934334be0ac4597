"""Checker of plans, independent of the optimizer: each rule evaluated in integers. Entry point: `check.check_plan`."""
