"""The parts of `transition`: who moves, room on the way, rules on the way, and detours. The checker uses none of it."""
