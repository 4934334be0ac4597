"""What `kinema plan` shows."""
