"""Branch and bound for small instances, with every rule between pods."""
