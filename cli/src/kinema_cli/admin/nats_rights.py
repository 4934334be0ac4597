"""`kinema nats-rights`: users of the broker and their rights, for the configuration of a nats-server."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def nats_rights(
    clusters: Annotated[
        list[str], typer.Option("--cluster-name", metavar="NAME", help="Name of a cluster; may be repeated.")
    ],
) -> None:
    """Print the authorization block of a nats-server: one user per service, with the rights that it needs.

    Passwords are variables of the server's environment, such as $OBSERVER_PASSWORD. The server reads an unquoted value:
    begin each password with a letter, or replace the variables with quoted bcrypt hashes.
    """
    from kinema_core.runtime.rights import authorization_text

    sys.stdout.write(f"authorization: {authorization_text(clusters)}\n")
