"""`--certificate`: the server speaks https, and refuses files that are no certificate with its key."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from marstts.cli.serve import certificate_of
from marstts.errors import ConfigError
from marstts.http.certificate import Certificate
from marstts.http.server import Server, ServerLimits

OPENSSL = shutil.which("openssl")
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="certificates are made by the program openssl")


def make(folder: Path, *options: str) -> Certificate:
    """A new certificate of this machine, signed by itself."""
    certificate = Certificate(folder / "certificate.pem", folder / "key.pem")
    command = [str(OPENSSL), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2",
               "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", *options]  # fmt: skip
    files = ["-out", str(certificate.path), "-keyout", str(certificate.private_key)]
    subprocess.run([*command, *files], check=True, capture_output=True)
    return certificate


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make(tmp_path_factory.mktemp("certificate"), "-nodes")


def test_clients_that_trust_the_certificate_are_served(certificate: Certificate) -> None:
    app = Starlette(routes=[Route("/", lambda request: JSONResponse("here"))])
    app.state.limits = ServerLimits()
    with Server(app, "127.0.0.1", 0, certificate=certificate) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            assert server.address.startswith("https://127.0.0.1:")
            trusting = ssl.create_default_context(cafile=str(certificate.path))
            assert httpx.get(server.address, verify=trusting).json() == "here"
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                httpx.get(server.address)
            with pytest.raises(httpx.HTTPError):
                httpx.get(server.address.replace("https", "http"))
        finally:
            server.stop()
            thread.join(timeout=20)


def test_the_key_may_be_in_the_file_of_the_certificate(certificate: Certificate, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.path.read_bytes() + certificate.key_path.read_bytes())
    assert certificate_of(both, None) == Certificate(both)
    assert certificate_of(None, None) is None


def test_what_is_no_certificate_with_its_key_is_refused(certificate: Certificate, tmp_path: Path) -> None:
    other = make(tmp_path, "-nodes")
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    for path, key in (
        (certificate.path, other.key_path),
        (certificate.path, None),
        (text, None),
        (text, other.key_path),
    ):
        with pytest.raises(ConfigError, match=r"pem: expected a certificate in PEM format and its private key"):
            certificate_of(path, key)
    with pytest.raises(ConfigError, match="missing"):
        certificate_of(tmp_path / "missing", None)
    with pytest.raises(ConfigError):
        certificate_of(tmp_path, None)
    with pytest.raises(ConfigError, match="give --certificate"):
        certificate_of(None, certificate.key_path)


def test_an_encrypted_key_is_refused_without_asking_for_its_password(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="encrypted"):
        make(tmp_path, "-passout", "pass:secret").check()
