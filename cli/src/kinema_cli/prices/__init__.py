"""The command `kinema prices`, and the public price lists that it reads."""
