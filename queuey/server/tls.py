"""TLS of the shipped server: a certificate and its key, read anew when their files change.

Connections that are open keep the certificate they began with.
"""

from __future__ import annotations

import _ssl
import logging
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

from queuey.background import BackgroundWork
from queuey.errors import ConfigurationError
from queuey.settings import Settings

__all__ = ["CertificateWatch", "ServerTls"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
"""Between two looks at the files. Whoever renews a certificate may send SIGHUP, and need not wait."""
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: forward secrecy and authenticated encryption. Those of TLS 1.3 all have both."""
_OTHERS, _GROUP_WRITES = stat.S_IRWXO, stat.S_IWGRP

_Signature = tuple[tuple[int, int, int], ...]


class ServerTls:
    """The certificate in force. New connections get it in their handshake."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """:raises ConfigurationError: the files cannot be used; the text says why."""
        self._certificate, self._key = certificate, key
        self._signature = self._signed()
        self._current = self._loaded()
        self.expires = _expiry(certificate)
        """When the certificate ends, seconds since 1970."""
        self.context = self._current
        """What the listener is opened with: it hands each connection on to the context in force."""
        self.context.sni_callback = self._choose

    @classmethod
    def of(cls, settings: Settings) -> ServerTls | None:
        """None if the settings name no certificate.

        :raises ConfigurationError: see above.
        """
        if not settings.server.tls_cert:
            return None
        return cls(Path(settings.server.tls_cert), Path(settings.server.tls_key))

    def changed(self) -> bool:
        """Whether the files are other ones than those in force, or than those that were refused."""
        return self._signed() != self._signature

    def reload(self) -> None:
        """Read the files anew. Thread-safe: a handshake gets the old certificate or the new one, whole.

        :raises ConfigurationError: they cannot be used. The certificate in force stays.
        """
        self._signature = self._signed()  # first, so that files are refused once and not at each look
        loaded = self._loaded()
        self.expires = _expiry(self._certificate)
        self._current = loaded

    def move(self, certificate: Path, key: Path) -> None:
        """Take other files from now on; as :meth:`reload`.

        :raises ConfigurationError: they cannot be used. Nothing changed.
        """
        before = self._certificate, self._key
        self._certificate, self._key = certificate, key
        try:
            self.reload()
        except ConfigurationError:
            self._certificate, self._key = before
            self._signature = self._signed()
            raise

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _signed(self) -> _Signature:
        """What changes when a file is replaced or rewritten. A missing file has zeros."""
        found = []
        for file in (self._certificate, self._key):
            try:
                told = file.stat()
                found.append((told.st_ino, told.st_mtime_ns, told.st_size))
            except OSError:
                found.append((0, 0, 0))
        return tuple(found)

    def _loaded(self) -> ssl.SSLContext:
        _check_mode(self._key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        context.set_alpn_protocols(["http/1.1"])
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        where = f"[server] tls_cert = {self._certificate}, tls_key = {self._key}"
        try:
            # Without an answer OpenSSL would ask for a password on the terminal, and a server would wait for it.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"{where}: {_reason(error)}: expected a PEM file with the certificate and those of its issuers, and a PEM "
                "file with its key, without a password"
            ) from error
        except OSError as error:
            raise ConfigurationError(f"{where}: cannot be read: {error.strerror}") from error
        return context


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's reason, as words.

    >>> _reason(ssl.SSLError(1, "[SSL: KEY_VALUES_MISMATCH] key values mismatch (_ssl.c:3895)"))
    'the key is not that of the certificate'
    """
    text = getattr(error, "reason", None) or str(error)  # one that OpenSSL did not make has none
    if "KEY_VALUES_MISMATCH" in text:
        return "the key is not that of the certificate"
    return text.replace("_", " ").lower()


def _check_mode(key: Path) -> None:
    """:raises ConfigurationError: others may read the key, or change it."""
    try:
        mode = key.stat().st_mode
    except OSError as error:
        raise ConfigurationError(f"[server] tls_key = {key}: cannot be read: {error.strerror}") from error
    if mode & (_OTHERS | _GROUP_WRITES):
        raise ConfigurationError(
            f"[server] tls_key = {key}: its mode is {stat.S_IMODE(mode):04o}, so that others may read or write it: "
            f"expected 0600, or 0640 for a group of its own: chmod o-rwx,g-w {key}"
        )


def _expiry(certificate: Path) -> float:
    """When the first certificate of a file ends, seconds since 1970."""
    # The standard library reads certificates only of its peers. This is the function behind that.
    told = _ssl._test_decode_cert(str(certificate))  # type: ignore[attr-defined]  # noqa: SLF001
    return float(ssl.cert_time_to_seconds(str(told["notAfter"])))


class CertificateWatch(BackgroundWork):
    """Looks at the files of a certificate again and again."""

    def __init__(self, tls: ServerTls, reloaded: Callable[[], None] = lambda: None) -> None:
        super().__init__("certificate", LOOK_SECONDS)
        self._tls, self._reloaded = tls, reloaded
        self.wake()

    async def turn(self) -> None:
        """Take a changed certificate over, or log why not."""
        self.wake()
        self.look()

    def look(self) -> None:
        """Look now."""
        if not self._tls.changed():
            return
        try:
            self._tls.reload()
        except ConfigurationError as error:
            log.error("%s; the former certificate stays in force", error)  # noqa: TRY400 - the text says all
        else:
            log.info("new connections get the certificate that now stands in its file")
            self._reloaded()
