"""Access keys: an id and a secret, with which SQS clients sign their requests.

A signature is verified with the secret itself, so a digest of it would not do. The store keeps only the id, beside its
application. The secret is derived from the id and a master secret of the server, whenever it is needed: a copy of the
store proves nothing, and a copy of the master secrets is worth nothing without the store.

The id names the master secret that its secret comes from, so that a new one can be put in front: it is for new keys,
and the former ones verify as long as they are in the settings.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
import tempfile
from base64 import b32encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from queuey.errors import ConfigurationError
from queuey.settings import Settings
from queuey.whole_files import sync

__all__ = ["FILE_NAME", "AccessKey", "MasterSecrets", "access_key_id_of", "account_of", "digest_of_access_key"]

log = logging.getLogger(__name__)

FILE_NAME = "sqs.secret"
"""The file in the data folder with the master secret that the server made for itself."""

_ID = re.compile(r"Q[A-Z2-7]{19}")
_VERSION = slice(1, 6)
"""The characters of an id that name a master secret: 25 bits of a hash of it."""
_MARK = b"access key: "
_SECRET_BYTES = 20
"""Of a derived secret: 160 bits, 40 characters, as many as Amazon's have."""
_FILE_SECRET = re.compile(r"[0-9a-f]{64}")
_PRIVATE_FOLDER = 0o700


@dataclass(frozen=True, slots=True)
class AccessKey:
    """What a client needs in order to sign."""

    id: str
    """20 upper-case letters and digits. Not secret: each request names it."""
    secret: str = field(repr=False)
    """40 hexadecimal digits."""


@lru_cache(4096)
def account_of(application: str) -> str:
    """The account number of an application: 12 digits, the first of which is not 0.

    A function of the name alone, so that all servers agree. Two names may have the same number by chance: with 1,000
    applications at a chance of 1 in 1.8 million.

    >>> account_of("demo")
    '284951520618'
    """
    number = int.from_bytes(hashlib.sha256(b"sqs account " + application.encode()).digest()[:16])
    return str(10**11 + number % (9 * 10**11))


def digest_of_access_key(key_id: str) -> bytes:
    """What the store keeps in the place of a key's digest: the id itself, marked.

    No application key has this digest, since nobody can find a text with a SHA-256 that is chosen; so it proves nothing
    as one.
    """
    return _MARK + key_id.encode()


def access_key_id_of(digest: bytes) -> str | None:
    """The id, if a stored digest is that of an access key.

    >>> access_key_id_of(digest_of_access_key("QABCDEFGHIJKLMNOPQRS"))
    'QABCDEFGHIJKLMNOPQRS'
    >>> access_key_id_of(bytes(32)) is None
    True
    """
    return digest.removeprefix(_MARK).decode() if digest.startswith(_MARK) else None


class MasterSecrets:
    """Makes access keys, and derives the secret of one from its id."""

    def __init__(self, given: Sequence[str], file: Path | None = None) -> None:
        """:param given: the first is for new keys; all verify.
        :param file: holds one more. Without given ones it is for new keys, and made with the first of them. A key made
            with it verifies as long as the file is there. None: there is none.
        """
        self._given = {_version_of(secret): secret for secret in given}
        self._newest = given[0] if given else None
        self._file = file
        self._from_file: dict[str, str] = {}
        self._missing: set[str] = set()
        """Versions that were looked for in vain, and logged."""

    @classmethod
    def of(cls, settings: Settings) -> MasterSecrets:
        """Those that the settings name. Reads no file yet.

        The store of the keys decides where they are without a setting: in the data folder beside an embedded store, in
        this process beside one in memory. Servers on Cassandra share one store, so nothing is made for them.
        """
        given, backend = settings.sqs.secrets, settings.metadata.backend or settings.storage.backend
        if backend == "memory":
            return cls(given or (secrets.token_hex(32),))
        return cls(given, Path(settings.server.data, FILE_NAME) if backend == "sqlite" else None)

    def new_access_key(self) -> AccessKey:
        """A key that nobody can guess. Blocks where it has to make the file.

        :raises ConfigurationError: there is no master secret: none is set, or the file cannot be read or made.
        """
        master = self._newest or self._newest_of_file()
        key_id = f"Q{_version_of(master)}{_base32(secrets.token_bytes(9))[:14]}"
        return AccessKey(key_id, _derived(master, key_id))

    def secret_of(self, key_id: str) -> str | None:
        """The secret of an access key.

        Ask it only of an id that the store holds: of an unknown master secret it looks in the file.

        :returns: None if the id was not made with a master secret of this server. The log says so once.
        """
        if not _ID.fullmatch(key_id):
            return None
        version = key_id[_VERSION]
        master = self._given.get(version) or self._from_file.get(version) or self._looked_up(version)
        return None if master is None else _derived(master, key_id)

    def _looked_up(self, version: str) -> str | None:
        """The master secret of this version in the file, which another process may have made meanwhile."""
        try:
            secret = self._read()
        except ConfigurationError as error:
            why = str(error)
        else:
            if secret is not None and _version_of(secret) == version:
                self._from_file[version] = secret
                return secret
            why = "it is neither in [sqs] secrets nor in the data folder"
        if version not in self._missing:
            self._missing.add(version)
            log.warning(
                "access keys that begin with Q%s are refused, for their master secret is gone: %s", version, why
            )
        return None

    def _newest_of_file(self) -> str:
        if self._file is None:
            raise ConfigurationError(
                "[sqs] secrets: none is set: expected the same ones on all servers of one Cassandra; 'queuey token key' "
                "makes one"
            )
        secret = self._read()
        if secret is None:
            _write_once(self._file, secrets.token_hex(32))
            secret = self._read()
        if secret is None:
            raise ConfigurationError(f"{self._file} was removed while it was made: try again")
        self._from_file[_version_of(secret)] = secret
        return secret

    def _read(self) -> str | None:
        """What the file holds; None if there is no file.

        :raises ConfigurationError: it cannot be read, or holds no secret.
        """
        if self._file is None:
            return None
        try:
            text = self._file.read_text(errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(f"{self._file} cannot be read: {error.strerror}") from error
        if not _FILE_SECRET.fullmatch(text):
            raise ConfigurationError(f"{self._file} holds no master secret: restore it from a backup, or remove it")
        return text


def _version_of(secret: str) -> str:
    """The name of a master secret in the ids of its access keys. It helps nobody to guess the secret."""
    return _base32(hmac.digest(secret.encode(), b"sqs master secret", "sha256"))[:5]


def _derived(master: str, key_id: str) -> str:
    """The secret of an access key, whose id names the master secret as well."""
    return hmac.digest(master.encode(), b"sqs access key " + key_id.encode(), "sha256")[:_SECRET_BYTES].hex()


def _base32(data: bytes) -> str:
    return b32encode(data).decode()


def _write_once(file: Path, text: str) -> None:
    """Make a file that only its owner may read, whole and on disk; leave one that another process made first.

    :raises ConfigurationError: it cannot be made; nothing is left of it.
    """
    try:
        file.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f"{file.name}.", dir=file.parent)  # mode 0600
        partial = Path(name)
        try:
            with os.fdopen(descriptor, "w") as writing:
                _give_to_owner_of(file.parent, descriptor)
                writing.write(f"{text}\n")
                writing.flush()
                os.fsync(writing.fileno())
            _link(partial, file)
        finally:
            partial.unlink()
        sync(file.parent)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be made: {error.strerror}") from error


def _give_to_owner_of(folder: Path, descriptor: int) -> None:
    """Let a file that root makes belong to the user of the server. SQLite does so for the files of the store."""
    owner = folder.stat()
    with contextlib.suppress(OSError):  # only root may give a file away
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _link(partial: Path, file: Path) -> None:
    """Give a whole file its name. A name that is taken stays with its file, which is whole as well."""
    with contextlib.suppress(FileExistsError):
        os.link(partial, file)
