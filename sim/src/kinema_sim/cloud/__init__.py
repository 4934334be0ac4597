"""The cloud that sells nodes."""
