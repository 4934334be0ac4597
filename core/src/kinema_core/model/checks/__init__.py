"""The parts of the plan checker. They share nothing with the code that makes plans, and count in integers."""
