"""`kinema simulate`: policies on a scenario in virtual time, and their comparison."""
