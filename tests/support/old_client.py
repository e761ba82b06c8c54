"""Clients of the first Queuey, written from what is known of how they behaved (queuey-api-v1 section 12).

They are as careless as the originals: a POST is repeated after a timeout, a switch of server is
never undone, the content type of an answer is not looked at. Today's server must serve them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter

BATCH_TTL = 259200
_LOCAL = ("127.0.0.", "localhost", "::1")

Entry = dict[str, Any]


class HTTPError(Exception):
    """Any answer that is not a success."""

    def __init__(self, status: int, response: requests.Response) -> None:
        super().__init__(status)
        self.status = status
        self.response = response


class OldClient:
    """queuey-py 0.2."""

    def __init__(self, app_key: str, connection: str, retries: int = 3, timeout: float = 30.0) -> None:
        """:param connection: base URLs that end in ``/v1/<application>/``, with commas between them."""
        urls = [url.strip() for url in connection.split(",")]
        random.shuffle(urls)
        self._urls = sorted(urls, key=lambda url: not (urlsplit(url).hostname or "").startswith(_LOCAL))
        self._retries = retries
        self._timeout = timeout
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", HTTPAdapter(pool_connections=1, pool_maxsize=1))
        self.session.headers["Authorization"] = f"Application {app_key}"
        self.app_url = self._urls[0]

    def close(self) -> None:
        self.session.close()

    def connect(self) -> None:
        """Is anybody there?"""
        root = urljoin(self.app_url, "/__heartbeat__")
        answer = self._send("HEAD", root)
        if answer.status_code != 200:
            raise HTTPError(answer.status_code, answer)

    def get(self, url: str = "", params: Mapping[str, Any] | None = None) -> requests.Response:
        return self._checked("GET", url, params=params)

    def post(
        self,
        url: str = "",
        params: Mapping[str, Any] | None = None,
        data: Any = "",
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        if isinstance(data, list):
            entries = [{"body": body, "ttl": BATCH_TTL} for body in data]
            data, headers = json.dumps({"messages": entries}), {"Content-Type": "application/json"}
        return self._checked("POST", url, params=params, data=data, headers=headers or _FORM)

    def put(
        self,
        url: str = "",
        params: Mapping[str, Any] | None = None,
        data: Any = "",
        headers: Mapping[str, str] | None = None,
    ) -> requests.Response:
        return self._checked("PUT", url, params=params, data=data, headers={**_FORM, **(headers or {})})

    def delete(self, url: str = "", params: Mapping[str, Any] | None = None) -> requests.Response:
        return self._checked("DELETE", url, params=params)

    def create_queue(self, partitions: int = 1, queue_name: str | None = None) -> str:
        fields: Entry = {"partitions": partitions}
        if queue_name is not None:
            fields["queue_name"] = queue_name
        return str(self.post(data=fields).json()["queue_name"])

    def messages(
        self, queue_name: str, partition: int | str = 1, since: str = "", limit: int = 100, order: str = "ascending"
    ) -> list[Entry]:
        """What came after ``since``, which the server's answer includes."""
        params = {"partitions": partition, "limit": limit, "order": order, "since": since}
        found: list[Entry] = self.get(queue_name, params=params).json()["messages"]
        return [message for message in found if message["message_id"] != since]

    def _checked(self, method: str, url: str, **given: Any) -> requests.Response:
        answer = self._send(method, urljoin(self.app_url, url), **given)
        if not 200 <= answer.status_code < 300:
            raise HTTPError(answer.status_code, answer)
        return answer

    def _send(self, method: str, url: str, **given: Any) -> requests.Response:
        switched = False
        for attempt in range(1, self._retries + 1):
            try:
                return self.session.request(method, url, timeout=self._timeout, **given)
            except requests.Timeout:
                if attempt == self._retries:
                    raise
            except requests.ConnectionError:
                if switched or len(self._urls) == 1:
                    raise
                switched = True
                before, self.app_url = self.app_url, self._urls[1]
                url = url.replace(before, self.app_url).replace(_root(before), _root(self.app_url))
        raise AssertionError("unreachable")


_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def _root(url: str) -> str:
    return urljoin(url, "/")


class PushClient:
    """The notification server of 2012: one queue per user token, JSON texts as raw bodies."""

    def __init__(self, app_key: str, url: str) -> None:
        """:param url: without a slash at its end."""
        self._url = url
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers["Authorization"] = f"Application {app_key}"

    def close(self) -> None:
        self.session.close()

    def new_queue(self, token: str | None = None) -> str:
        answer = self.session.post(self._url, data={"queue_name": token} if token else b"", timeout=90)
        return str(self._json(answer)["queue_name"])

    def new_message(self, queue: str, message: Entry) -> Entry:
        answer = self.session.post(f"{self._url}/{queue}", data=json.dumps(message), timeout=90)
        (told,) = self._json(answer)["messages"]
        return {"key": told["key"], "timestamp": told["timestamp"], **message}

    def get_messages(self, queue: str, since: str | None = None, limit: int = 20) -> list[Entry]:
        params: Entry = {"limit": limit, "order": "ascending"}
        if since is not None:
            params["since"] = since
        answer = self.session.get(f"{self._url}/{queue}", params=params, timeout=90)
        return [
            {"key": found["message_id"], "timestamp": found["timestamp"], **json.loads(found["body"])}
            for found in self._json(answer)["messages"]
        ]

    def mark_read(self, queue: str, key: str) -> Entry:
        """There was no place for a read position, so a marker was posted among the messages."""
        return self.new_message(queue, {"action": "read", "id": key})

    @staticmethod
    def _json(answer: requests.Response) -> Entry:
        if answer.status_code not in {200, 201}:
            raise HTTPError(answer.status_code, answer)
        told: Entry = json.loads(answer.content)
        return told
