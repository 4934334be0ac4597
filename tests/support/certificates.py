"""Certificates of an authority of our own, made with openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@dataclass(frozen=True)
class Authority:
    """An authority; its own certificate is `ca.pem` in its directory."""

    directory: Path

    @property
    def certificate(self) -> str:
        """File with its certificate."""
        return str(self.directory / "ca.pem")

    def issue(self, name: str, hosts: str = "DNS:client", *, days: int = 30) -> tuple[str, str]:
        """Make a certificate, expired with days below 0; returns its file and its key's."""
        made = [str(self.directory / f"{name}.{kind}") for kind in ("pem", "key", "csr", "ext")]
        certificate, key, request, extensions = made
        Path(extensions).write_text(f"subjectAltName={hosts}\n", encoding="utf-8")
        _openssl("req", *_KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        signed_by = ("-CA", self.certificate, "-CAkey", str(self.directory / "ca.key"), "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, *signed_by, "-days", str(days), "-out", certificate)
        return certificate, key


def authority(directory: Path) -> Authority:
    """Make an authority."""
    directory.mkdir(parents=True, exist_ok=True)
    made = ("-keyout", str(directory / "ca.key"), "-out", str(directory / "ca.pem"))
    _openssl("req", "-x509", *_KEY, "-days", "30", "-subj", f"/CN={directory.name}", *made)
    return Authority(directory)
