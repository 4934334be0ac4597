"""Lower bounds on the cost of any plan, each with a certificate. Entry point: `certificate.lower_bound`."""
