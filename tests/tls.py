"""A Redis that speaks TLS only, with a CA made for it. The wheel's server knows no TLS: it is Debian's."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys.running import reserved_port

PROGRAMS = ("redis-server", "openssl")
PATIENCE_S = 30.0
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class TlsRedis:
    """Where it answers, and what one has to know."""

    port: int
    password: str
    folder: Path

    def url(
        self, ca: str | None = "ca.pem", *, user: str = "", password: str = "", host: str = "127.0.0.1"
    ) -> str:
        """Its URL; `ca` is a file of its folder."""
        trusted = f"?ssl_ca_certs={self.folder / ca}" if ca else ""
        return f"rediss://{user}:{password or self.password}@{host}:{self.port}/0{trusted}"


@contextmanager
def tls_redis(folder: Path, *more: str) -> Iterator[TlsRedis]:
    """Start one, with `more` lines in its configuration: without the programs a skip on a laptop, a failure in CI."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        assert not os.environ.get("CI"), f"not installed: {missing}"
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder.mkdir(parents=True, exist_ok=True)
    for ca in ("ca", "other"):
        make_ca(folder, ca)
    make_certificate(folder)
    with reserved_port() as reserved:
        server = TlsRedis(reserved.getsockname()[1], secrets.token_hex(12), folder)
        log = folder / "redis.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["redis-server", "-"], stdin=subprocess.PIPE, stdout=out, stderr=out, cwd=folder
            )
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write("\n".join([config(server), *more, ""]).encode())
        try:
            give_up = time.monotonic() + PATIENCE_S
            while "Ready to accept connections" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < give_up, log.read_text()
                time.sleep(0.02)
            yield server
        finally:
            process.kill()
            process.wait()


def config(server: TlsRedis) -> str:
    settings = {
        "bind": "127.0.0.1",
        "port": "0",
        "tls-port": str(server.port),
        "tls-cert-file": str(server.folder / "server.pem"),
        "tls-key-file": str(server.folder / "server.key"),
        "tls-ca-cert-file": str(server.folder / "ca.pem"),
        "tls-auth-clients": "no",
        "requirepass": server.password,
        "dir": str(server.folder),
        "appendonly": "yes",
        "maxmemory-policy": "noeviction",
    }
    return "".join(f'{name} "{value}"\n' for name, value in settings.items()) + 'save ""\n'


def make_ca(folder: Path, name: str) -> None:
    openssl(
        folder,
        "req",
        "-x509",
        *KEY,
        "-keyout",
        f"{name}.key",
        "-out",
        f"{name}.pem",
        "-days",
        "2",
        "-subj",
        f"/CN={name}",
    )


def make_certificate(folder: Path) -> None:
    """The server's, for 127.0.0.1 alone, signed by `ca`."""
    openssl(folder, "req", *KEY, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=redis")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names", "-days", "2")
    openssl(folder, "x509", "-req", "-in", "server.csr", "-out", "server.pem", *signed)


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
