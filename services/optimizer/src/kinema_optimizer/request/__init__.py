"""What is asked, restated so that nodes, pods and prices say all of it."""
