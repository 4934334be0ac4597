"""The decision itself: pure functions of the plan, the state, what was remembered, the limits and the time."""
