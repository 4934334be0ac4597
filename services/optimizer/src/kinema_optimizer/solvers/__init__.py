"""HiGHS, and when to stop it: the only importer of highspy."""
