"""Ports of services that live side by side."""

from __future__ import annotations

import pytest

from tests.support.services import ports
from tests.support.services.ports import free_ports


def test_a_port_is_given_once_whether_it_is_bound_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    (given,) = free_ports(1, ["127.0.0.1"])
    monkeypatch.setattr(ports, "LOWEST", given)
    monkeypatch.setattr(ports, "HIGHEST", given + 1)

    with pytest.raises(OSError, match="no 1 free ports"):
        free_ports(1, ["127.0.0.1"])
