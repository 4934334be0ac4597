"""The scheduler: filters, scores, and the books it keeps about nodes."""
