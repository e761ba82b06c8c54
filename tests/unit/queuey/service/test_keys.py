"""Keys: an operator's is no application's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from queuey.clock import ManualClock
from queuey.errors import ConfigurationError, InvalidApplicationKey, InvalidParameter
from queuey.future import Future, run, start
from queuey.ids import IdGenerator
from queuey.model import PrincipalKey
from queuey.security.access_keys import MasterSecrets, account_of, digest_of_access_key
from queuey.security.app_keys import ApplicationKeys, digest_of, label_of
from queuey.service.keys import Keys
from queuey.storage.memory import MemoryStores

CHOSEN = "c" * 32
CHOSEN_LATER = "d" * 32


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

    assert run(Keys(store, clock, {}).first()) is None


def test_a_server_that_knows_a_key_asks_the_store_for_none_once_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is away just then would end a server that serves already."""
    clock = ManualClock()
    keys = Keys(MemoryStores(clock, IdGenerator(clock)).metadata, clock, {})
    run(keys.begin(CHOSEN_LATER))
    monkeypatch.setattr(Keys, "_look", None)

    assert run(keys.first()) is None


def test_a_chosen_key_is_put_in_force_by_each_start() -> None:
    """Also after its removal, so the documentation says to take it out of the environment first."""
    clock = ManualClock()
    store = MemoryStores(clock, IdGenerator(clock)).metadata
    keys = Keys(store, clock, {})
    run(keys.first())

    assert run(keys.begin(CHOSEN_LATER)) == ("demo", CHOSEN_LATER)
    assert run(keys.begin(CHOSEN_LATER)) is None
    store.remove_key("app:demo", label_of(digest_of(CHOSEN_LATER))).wait()
    assert run(keys.begin(CHOSEN_LATER)) == ("demo", CHOSEN_LATER)


def test_an_answer_that_comes_late_brings_no_key_back(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that took long put back what a later one had found to be removed, and forgot what was made since."""
    run(keys.new("billing", CHOSEN_LATER))
    store, asked = keys._metadata, list[Future[Sequence[PrincipalKey]]]()

    def slowly() -> Future[Sequence[PrincipalKey]]:
        asked.append(Future())
        return asked[-1]

    with monkeypatch.context() as slow:
        slow.setattr(store, "keys", slowly)
        early = start(keys.refresh())
    before = store.keys().wait()
    store.remove_key("app:billing", label_of(digest_of(CHOSEN_LATER))).wait()
    made = run(keys.new("sales"))
    asked[0].set_result(before)
    early.result()

    assert keys.applications == ["from-file", "sales"]
    assert keys.find(digest_of(CHOSEN_LATER)) is None
    assert keys.find(digest_of(made)) is not None


MASTER = MasterSecrets(("m" * 32,))


def test_an_access_key_makes_its_application_and_is_no_application_key(keys: Keys) -> None:
    made = run(keys.new_access_key("billing", MASTER))

    assert keys.application_of_access_key(made.id) == "billing"
    assert keys.application_of_access_key(made.id.lower()) is None
    assert keys.knows("billing")
    scheme = ApplicationKeys(keys.find)
    for credential in (made.id, made.secret, f"access key: {made.id}", digest_of_access_key(made.id).hex()):
        with pytest.raises(InvalidApplicationKey):
            scheme.identify(credential)


def test_the_last_use_of_a_key_is_known_as_long_as_it_is_in_force() -> None:
    clock = ManualClock()
    store = MemoryStores(clock, IdGenerator(clock)).metadata
    keys = Keys(store, clock, {})
    digest = digest_of(run(keys.new("billing", "k" * 32)))
    assert keys.last_use(digest) is None

    scheme = ApplicationKeys(keys.find, keys.note_use)
    scheme.recall("k" * 32)
    assert keys.last_use(digest) is None
    scheme.identify("k" * 32)
    assert keys.last_use(digest) == clock.now_ticks()

    store.remove_key("app:billing", label_of(digest)).wait()
    run(keys.refresh())
    assert keys.last_use(digest) is None


def test_a_removed_access_key_is_gone_with_the_next_refresh() -> None:
    clock = ManualClock()
    store = MemoryStores(clock, IdGenerator(clock)).metadata
    keys, elsewhere = Keys(store, clock, {}), Keys(store, clock, {})
    made = run(elsewhere.new_access_key("billing", MASTER))
    run(keys.refresh())
    assert keys.application_of_access_key(made.id) == "billing"

    assert store.remove_key("app:billing", made.id).wait() == 1
    run(keys.refresh())

    assert keys.application_of_access_key(made.id) is None
    assert not keys.knows("billing")


def test_no_access_key_is_stored_without_a_master_secret_or_for_a_name_that_is_none(keys: Keys) -> None:
    with pytest.raises(ConfigurationError, match=r"\[sqs\] secrets: none is set"):
        run(keys.new_access_key("billing", MasterSecrets(())))
    with pytest.raises(InvalidParameter):
        run(keys.new_access_key("a/b", MASTER))

    assert keys.applications == []


def test_an_account_finds_its_application(keys: Keys) -> None:
    run(keys.new("billing"))
    assert keys.application_of_account(account_of("billing")) == "billing"
    assert keys.application_of_account(account_of("later")) is None

    run(keys.new("later"))

    assert keys.application_of_account(account_of("later")) == "later"
    assert keys.application_of_account("billing") is None


def test_an_account_of_two_applications_is_neither_s(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuey.service.keys.account_of", lambda name: "1" * 12 if name != "other" else "2" * 12)
    for name in ("billing", "shipping", "other"):
        run(keys.new(name))

    assert keys.application_of_account("1" * 12) is None
    assert keys.application_of_account("2" * 12) == "other"


def test_an_account_is_known_while_another_thread_looks_at_all(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("billing", "shipping", "other"):
        run(keys.new(name))
    asked: list[str] = []

    def looked_at(name: str) -> str:
        asked.append(name)
        if len(asked) == 2:  # what another thread finds meanwhile
            found = {each: keys.application_of_account(account_of(each)) for each in keys.applications}
            assert found == {each: each for each in keys.applications}
        return account_of(name)

    monkeypatch.setattr("queuey.service.keys.account_of", looked_at)
    assert keys.application_of_account(account_of("billing")) == "billing"
    assert len(asked) > 4
