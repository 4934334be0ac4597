"""How usage becomes requests: history, regression and the bounded step; pure."""
