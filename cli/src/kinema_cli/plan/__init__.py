"""The command `kinema plan`: its table, its progress and what a catalog leaves open."""
