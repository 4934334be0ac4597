"""What `kinema explain` shows."""
