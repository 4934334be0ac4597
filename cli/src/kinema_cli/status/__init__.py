"""What `kinema status` and `kinema plans` show."""
