"""Controllers: each makes what is so into what was asked for, in virtual time."""
