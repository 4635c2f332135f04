"""TLS: the user's certificate, or one that is made and signed on the spot."""

from __future__ import annotations

import ipaddress
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path

from headroom_bench.errors import UserError
from mock_server.options import MockOptions


def context_of(options: MockOptions) -> ssl.SSLContext | None:
    """None for plain HTTP. Raises `UserError` where certificate or key cannot be had."""
    if options.tls_self_signed:
        with tempfile.TemporaryDirectory() as folder:
            return _loaded(*_self_signed(Path(folder), options.host))
    if options.tls_cert is None and options.tls_key is None:
        return None
    if options.tls_cert is None or options.tls_key is None:
        raise UserError("TLS needs both --tls-cert and --tls-key")
    return _loaded(options.tls_cert, options.tls_key)


def _loaded(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as why:
        told = f"cannot use the certificate {cert} with the key {key}: {why.strerror or why}"
        raise UserError(told) from None
    return context


def _self_signed(folder: Path, host: str) -> tuple[Path, Path]:
    """A throwaway certificate for localhost and `host`, made by the `openssl` program."""
    if shutil.which("openssl") is None:
        raise UserError(
            "--tls-self-signed needs the `openssl` program; "
            "install it, or give --tls-cert and --tls-key"
        )
    cert, key = folder / "cert.pem", folder / "key.pem"
    names = ",".join(["DNS:localhost", "IP:127.0.0.1", _named(host)])
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=headroom-bench mock"]
    command += ["-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(cert)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        last = made.stderr.strip().splitlines()[-1:] or ["openssl said nothing"]
        raise UserError(f"openssl made no certificate: {last[0]}")
    return cert, key


def _named(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"
