"""`kinema nats-rights`: users of the broker and their rights, for the configuration of a nats-server."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kinema_core.runtime.rights import Proof


class Auth(StrEnum):
    """Proof of a user: as the values of the charts name it, with `jwt` for `.creds`."""

    PASSWORD = "password"  # noqa: S105 - a name
    NKEY = "nkey"
    JWT = "jwt"


def nats_rights(
    clusters: Annotated[
        list[str], typer.Option("--cluster-name", metavar="NAME", help="Name of a cluster; may be repeated.")
    ],
    accounts: Annotated[bool, typer.Option("--accounts", help="Give each cluster an account of its own.")] = False,
    auth: Annotated[Auth, typer.Option("--auth", help="Proof of a user; jwt prints nsc commands.")] = Auth.PASSWORD,
    size: Annotated[
        str,
        typer.Option(
            "--account-size",
            metavar="SIZE",
            help="Storage of an account, all copies of its streams. Default: what `kinema setup` makes by default.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Print the authorization block of a nats-server: one user per service, with the rights that it needs.

    Passwords and public keys are variables of the server's environment, such as $OBSERVER_PASSWORD. The server reads an
    unquoted value: begin each password with a letter, or replace the variables with quoted bcrypt hashes.
    """
    from kinema_cli.admin.setup import size_in_bytes
    from kinema_cli.inputs import UsageError, fail
    from kinema_core.runtime.rights import ACCOUNT_BYTES, accounts_text, authorization_text, nsc_text

    try:
        store = size_in_bytes("--account-size", size) if size else ACCOUNT_BYTES
    except UsageError as error:
        raise typer.Exit(fail(error)) from error
    if auth is Auth.JWT:
        text = nsc_text(clusters, store)
    else:
        proof: Proof = "nkey" if auth is Auth.NKEY else "password"
        one = f"authorization: {authorization_text(clusters, proof)}"
        text = f"accounts: {accounts_text(clusters, proof, store)}" if accounts else one
    sys.stdout.write(f"{text}\n")
