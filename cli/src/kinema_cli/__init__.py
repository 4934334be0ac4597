"""The kinema command."""
