"""The commands `kinema recommend` and `kinema forecast`: requests that follow usage, and what led to them."""
