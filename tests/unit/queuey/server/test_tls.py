"""Certificates: which files are taken, which are refused, and when they are read anew."""

from __future__ import annotations

import re
import shutil
import ssl
import time
from pathlib import Path

import pytest

from queuey.errors import ConfigurationError
from queuey.server.tls import CertificateWatch, ServerTls
from tests.support.services.certificates import Authority, Identity, name_in


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def identity(authority: Authority, name: str) -> Identity:
    found = authority.identity(name, "127.0.0.1")
    found.key.chmod(0o600)
    return found


@pytest.fixture
def first(authority: Authority) -> Identity:
    return identity(authority, "first")


def name_served(tls: ServerTls, authority: Authority, **client: object) -> str:
    """The name in the certificate that a client gets, by a handshake in memory."""
    trusting = ssl.create_default_context(cafile=str(authority.file))
    for name, value in client.items():
        setattr(trusting, name, value)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = trusting.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
    there = tls.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (here, there):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    told = here.getpeercert(binary_form=True)
    assert told is not None
    return name_in(told)


def test_a_client_gets_the_certificate_and_its_end_is_known(authority: Authority, first: Identity) -> None:
    tls = ServerTls(first.cert, first.key)

    assert name_served(tls, authority) == "first"
    assert 0.9 * 86400 < tls.expires - time.time() < 1.1 * 86400


def test_old_versions_are_refused_and_tls_1_2_has_forward_secrecy(authority: Authority, first: Identity) -> None:
    tls = ServerTls(first.cert, first.key)

    assert name_served(tls, authority, maximum_version=ssl.TLSVersion.TLSv1_2) == "first"
    assert tls.context.minimum_version is ssl.TLSVersion.TLSv1_2
    suites = [one["name"] for one in tls.context.get_ciphers()]
    assert [name for name in suites if not re.match(r"TLS_|ECDHE-.*(GCM|CHACHA20)", name)] == []


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o666, 0o620, 0o601])
def test_a_key_that_others_may_read_or_write_is_refused(first: Identity, mode: int) -> None:
    first.key.chmod(mode)

    with pytest.raises(ConfigurationError, match=rf"its mode is 0{mode:o}.*chmod o-rwx,g-w"):
        ServerTls(first.cert, first.key)


def test_a_key_for_a_group_of_its_own_is_taken(first: Identity) -> None:
    first.key.chmod(0o640)

    ServerTls(first.cert, first.key)


def test_the_key_of_another_certificate_is_refused(authority: Authority, first: Identity) -> None:
    with pytest.raises(ConfigurationError, match="the key is not that of the certificate"):
        ServerTls(first.cert, identity(authority, "second").key)


@pytest.mark.parametrize("which", ["cert", "key"])
def test_a_file_that_is_missing_or_no_pem_is_refused(first: Identity, which: str) -> None:
    file: Path = getattr(first, which)
    file.write_text("nothing of that kind")
    with pytest.raises(ConfigurationError, match=r"\[server\] tls_cert = .*expected a PEM file"):
        ServerTls(first.cert, first.key)
    file.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        ServerTls(first.cert, first.key)


def test_a_key_with_a_password_is_refused_and_asks_nobody(first: Identity) -> None:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(first.key.read_bytes(), None)
    hidden = serialization.BestAvailableEncryption(b"secret")
    first.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden))

    with pytest.raises(ConfigurationError, match="without a password"):
        ServerTls(first.cert, first.key)


def replace(old: Identity, new: Identity) -> None:
    """As tools for certificates do it: a new file takes the place of the old one."""
    for source, target in ((new.key, old.key), (new.cert, old.cert)):
        partial = target.with_suffix(".new")
        shutil.copy2(source, partial)
        partial.replace(target)


def test_a_renewed_certificate_is_for_new_connections(authority: Authority, first: Identity) -> None:
    tls, told = ServerTls(first.cert, first.key), []
    watch = CertificateWatch(tls, lambda: told.append(1))

    watch.look()
    replace(first, identity(authority, "second"))
    watch.look()
    watch.look()

    assert (name_served(tls, authority), told) == ("second", [1])


def test_a_bad_renewal_is_logged_once_and_the_former_certificate_stays(
    authority: Authority, first: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    tls = ServerTls(first.cert, first.key)
    watch = CertificateWatch(tls)
    before = first.cert.read_bytes(), first.key.read_bytes()

    first.key.write_text("half a ke")
    watch.look()
    watch.look()

    assert [one.levelname for one in caplog.records] == ["ERROR"]
    assert "the former certificate stays in force" in caplog.text
    assert name_served(tls, authority) == "first"
    first.key.write_bytes(before[1])
    watch.look()
    assert not tls.changed()
    assert name_served(tls, authority) == "first"


def test_other_files_are_taken_whole_or_not_at_all(authority: Authority, first: Identity, tmp_path: Path) -> None:
    tls, second = ServerTls(first.cert, first.key), identity(authority, "second")

    with pytest.raises(ConfigurationError):
        tls.move(second.cert, tmp_path / "none.pem")
    assert name_served(tls, authority) == "first"
    assert not tls.changed()

    tls.move(second.cert, second.key)
    assert name_served(tls, authority) == "second"
