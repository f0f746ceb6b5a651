"""A TLS certificate: with it the server speaks https, which browsers ask for where a page records.

Upstream: the command line.  Downstream: `server.Server`, whose uvicorn opens the same files.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from marstts.errors import ConfigError
from marstts.io.reading import printable_name, read_regular_file

MAX_BYTES = 2**20
"""Longest file of certificates or of a key."""


@dataclass(frozen=True)
class Certificate:
    """Files in PEM format; the key may be in the file of the certificate."""

    path: Path
    private_key: Path | None = None

    @property
    def key_path(self) -> Path:
        """The file that holds the key."""
        return self.private_key or self.path

    def check(self) -> None:
        """ConfigError unless both files can be read and belong together."""
        for path in (self.path, self.key_path):
            read_regular_file(path, MAX_BYTES, ConfigError)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.path, self.key_path, refuse_password)
        except (OSError, ValueError) as error:  # SSLError is an OSError
            reason = getattr(error, "reason", None) or error
            raise ConfigError(
                f"{printable_name(self.path)}: expected a certificate in PEM format and its private key, the latter in "
                f"the same file or given by --private-key ({reason})"
            ) from error


def refuse_password() -> NoReturn:
    """Refuse a key that is encrypted: OpenSSL would ask for its password on the terminal."""
    raise ValueError("the private key is encrypted")
