"""Provider of an on-premises inventory: existing machines that are switched on and off."""
