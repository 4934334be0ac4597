"""Answers to why a node stays and why a pod is where it is. Entry points: `explain.explain_node`, `explain_pod`."""
