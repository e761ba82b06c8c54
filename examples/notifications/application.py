"""The application: it makes a queue for each user, and appends to it.

Nobody else has the key. A page reads the queue of its user from Queuey itself, with the user's token.
"""

from __future__ import annotations

from hashlib import sha256

from qdo.client import Client, NewMessage
from queuey.errors import QueueNotFound
from queuey.security.dev_issuer import DevIssuer
from queuey.security.principals import parse_address

KEEP_SECONDS = 7 * 86_400
"""How long a notification is kept, whether or not it was read."""
TIMEOUT_SECONDS = 10


class Application:
    """Makes queues and tokens, and notifies users. Many threads may use it."""

    def __init__(self, url: str, name: str, key: str, issuer: DevIssuer) -> None:
        """:param url: of Queuey, as browsers reach it.
        :param issuer: vouches for every user that signs in.
        """
        self.url = url.rstrip("/")
        self._name = name
        self._key = key
        self._issuer = issuer

    def sign_in(self, address: str) -> dict[str, str]:
        """What a page needs to act for a user.

        It does two things: it is an identity provider that believes everybody, and it makes a queue for each user. With
        another provider, make a queue for the user that a verified token names.

        :raises ValueError: the text is no address.
        :raises QueueyError: the queue could not be made.
        """
        user = _user(address)
        self._make_queue(user)
        return {
            "user": user,
            "token": self._issuer.id_token(user),
            "url": self.url,
            "application": self._name,
            "queue": queue_of(user),
        }

    def notify(self, address: str, text: str) -> None:
        """Notify a user. A user who comes later finds it.

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
        """With one partition, so that one position says what the user has read.

        Only this user may use it.
        """
        with self._client() as client:
            client.create_queue(queue_of(user), partitions=1, principals=[f"oidc:{user}"])

    def _client(self) -> Client:
        return Client(self.url, self._name, self._key, timeout_seconds=TIMEOUT_SECONDS)


def queue_of(user: str) -> str:
    """The name of a user's queue.

    An address may be longer than a name may be, and has other letters.
    """
    return f"notifications-{sha256(user.encode()).hexdigest()[:32]}"


def _user(address: str) -> str:
    """The address in lower case: people do not care about its case."""
    return parse_address(address.strip().lower())
