"""Making of a checked plan from a question, by a portfolio of methods. Entry point: `planner.plan_for`."""
