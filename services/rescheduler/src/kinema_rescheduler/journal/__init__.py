"""Journal of executions: the fold of the log, and the events of decisions. Entry point: `reading.LogReader`."""
