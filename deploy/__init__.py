"""What ships Kinema in containers."""
