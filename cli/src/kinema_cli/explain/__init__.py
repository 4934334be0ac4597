"""The command `kinema explain` and its table."""
