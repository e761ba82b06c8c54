"""The application: it has the key, makes each user's queue, and appends to it what the user is to hear of.

Nobody else has the key. A page reads its user's queue from Queuey itself, with the user's token.
"""

from __future__ import annotations

from hashlib import sha256

from qdo.client import Client, NewMessage
from queuey.errors import QueueNotFound
from queuey.security.dev_issuer import DevIssuer
from queuey.security.principals import parse_address

KEEP_SECONDS = 7 * 86_400
"""How long a notification is kept, read or not."""
TIMEOUT_SECONDS = 10


class Application:
    """May be used from many threads."""

    def __init__(self, url: str, name: str, key: str, issuer: DevIssuer) -> None:
        """:param url: of Queuey, as browsers reach it too.
        :param issuer: vouches for whoever signs in.
        """
        self.url = url.rstrip("/")
        self._name = name
        self._key = key
        self._issuer = issuer

    def sign_in(self, address: str) -> dict[str, str]:
        """What a page needs to act for a user.

        Two in one: an identity provider that believes everybody, and an application that greets each user with a
        queue. Where the provider is somebody else's, greet whom a verified token names.

        :raises ValueError: it is no address.
        :raises QueueyError: the queue could not be made.
        """
        user = _user(address)
        self._make_queue(user)
        return {
            "user": user,
            "token": self._issuer.id_token(user),
            "queue": f"{self.url}/v1/{self._name}/{queue_of(user)}",
        }

    def notify(self, address: str, text: str) -> None:
        """Tell a user something; one who has never been here will find it.

        :raises ValueError, QueueyError: as :meth:`sign_in`.
        """
        user = _user(address)
        message = NewMessage(text, ttl_seconds=KEEP_SECONDS, content_type="text/plain; charset=utf-8")
        with self._client() as client:
            try:
                client.append(queue_of(user), message)
            except QueueNotFound:
                self._make_queue(user)
                client.append(queue_of(user), message)

    def _make_queue(self, user: str) -> None:
        """One partition, so that one position says what was read; for this user and nobody else."""
        with self._client() as client:
            client.create_queue(queue_of(user), partitions=1, principals=[f"oidc:{user}"])

    def _client(self) -> Client:
        return Client(self.url, self._name, self._key, timeout_seconds=TIMEOUT_SECONDS)


def queue_of(user: str) -> str:
    """The name of a user's queue: an address may be longer than a name, and has other letters."""
    return f"notifications-{sha256(user.encode()).hexdigest()[:32]}"


def _user(address: str) -> str:
    """People do not care about the case of their address."""
    return parse_address(address.strip().lower())
