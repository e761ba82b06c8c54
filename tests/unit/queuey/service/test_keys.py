"""Keys: an operator's is no application's."""

from __future__ import annotations

import pytest

from queuey.clock import ManualClock
from queuey.errors import InvalidParameter
from queuey.future import run
from queuey.ids import IdGenerator
from queuey.security.app_keys import digest_of
from queuey.service.keys import Keys
from queuey.storage.memory import MemoryStores

CHOSEN = "c" * 32


@pytest.fixture
def keys() -> Keys:
    clock = ManualClock()
    return Keys(MemoryStores(clock, IdGenerator(clock)).metadata, clock, {"from-file": (CHOSEN,)})


def test_an_operator_is_no_application(keys: Keys) -> None:
    key = run(keys.new("root", operator=True))
    run(keys.new("billing"))

    found = keys.find(digest_of(key))
    assert found is not None
    assert found.principal == "operator:root"
    assert keys.applications == ["billing", "from-file"]
    assert not any(keys.knows(name) for name in ("root", "operator:root", ""))


def test_an_operator_and_an_application_may_have_one_name(keys: Keys) -> None:
    own, operators = run(keys.new("root")), run(keys.new("root", operator=True))

    assert keys.knows("root")
    assert set(keys.acting_for("root")) == {digest_of(own), digest_of(operators)}
    assert set(keys.acting_for("from-file")) == {digest_of(CHOSEN), digest_of(operators)}


@pytest.mark.parametrize("name", ["", "operator:root", "app:a", ".", "a b", "x" * 51])
@pytest.mark.parametrize("operator", [False, True])
def test_a_name_is_no_principal(keys: Keys, name: str, operator: bool) -> None:
    with pytest.raises(InvalidParameter):
        run(keys.new(name, operator=operator))


def test_a_server_whose_operator_has_a_key_makes_no_application_by_itself() -> None:
    clock = ManualClock()
    store = MemoryStores(clock, IdGenerator(clock)).metadata
    run(Keys(store, clock, {}).new("root", operator=True))

    assert run(Keys(store, clock, {}).first(None)) is None
