"""The HTML report: one file with pictures and tables that opens without a network."""
