"""The table of permissions: what a credential carries, and which tokens it may get."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from queuey.model import Queue, QueueKind
from queuey.security.permissions import ANONYMOUS, VERBS, Grant, Identity, Permission, key_behind, may_mint, permits
from queuey.security.principals import payers

ALL = [permission for permission in Permission if permission is not Permission.NONE]
WORD = {
    Permission.LIST: "list",
    Permission.MINE: "list",
    Permission.CREATE: "create",
    Permission.CONFIGURE: "configure",
    Permission.APPEND: "append",
    Permission.VIEW: "read",
    Permission.DELETE: "delete",
    Permission.COMMIT: "commit",
    Permission.RECEIVE: "receive",
}
OWN = Queue("a", "q", UUID(int=1), 1)
NAMING = Queue("a", "q", UUID(int=1), 1, principals=("bid:joe@example.org",))
PUBLIC = Queue("a", "q", UUID(int=1), 1, kind=QueueKind.PUBLIC)


def carried(grant: Grant, application: str = "a", name: str = "q", queue: Queue | None = OWN) -> set[Permission]:
    return {each for each in ALL if permits(each, Identity([grant]), application, name, queue)}


def test_a_whole_credential_carries_all_that_its_principal_may_do() -> None:
    assert carried(Grant("app:a")) == set(ALL) - {Permission.APPLICATIONS}
    assert carried(Grant("bid:joe@example.org"), queue=NAMING) == {
        Permission.MINE,
        Permission.MINT,
        Permission.VIEW,
        Permission.DELETE,
        Permission.COMMIT,
        Permission.RECEIVE,
    }


@pytest.mark.parametrize("queue", [OWN, NAMING, PUBLIC, None])
def test_an_operator_may_do_everything_in_every_application(queue: Queue | None) -> None:
    operator = Identity([Grant("operator:root", key=b"digest")])

    assert {each for each in ALL if permits(each, operator, "a", "q", queue)} == set(ALL)
    assert operator.operator == "operator:root"
    assert operator.counted_as("a") == "operator:root"
    assert key_behind(operator, "a", "bid:joe@example.org") == ("a", b"digest")


@pytest.mark.parametrize(
    "principal", ["app:operator", "app:operator:root", "bid:operator@example.org", "oidc:operator:root"]
)
def test_nobody_else_is_an_operator(principal: str) -> None:
    identity = Identity([Grant(principal)])

    assert not permits(Permission.APPLICATIONS, identity, "", "", None)
    assert not permits(Permission.LIST, identity, "a", "", None)
    assert identity.operator is None
    assert identity.counted_as("a") == "a"


def test_a_restricted_credential_proves_no_operator() -> None:
    """None is ever made; if one were, it would not act on the paths of all applications."""
    part = Identity([Grant("operator:root", None, "a", None, frozenset(VERBS))])

    assert not permits(Permission.APPLICATIONS, part, "", "", None)
    assert not permits(Permission.LIST, part, "b", "", None)
    assert part.operator is None


def test_whose_share_a_call_counts_against() -> None:
    assert payers(frozenset({"app:a", "operator:root"})) == ("operator:root",)
    assert payers(frozenset({"operator:b", "operator:a", "bid:joe@example.org"})) == ("operator:a",)


@pytest.mark.parametrize("verbs", [set(), {"read"}, {"append", "list"}, set(VERBS)])
def test_verbs_restrict_and_no_verb_begets_tokens(verbs: set[str]) -> None:
    grant = Grant("app:a", None, "a", None, frozenset(verbs))

    assert carried(grant) == {permission for permission, word in WORD.items() if word in verbs}


def test_queues_restrict_by_exact_name_and_carry_nothing_that_is_no_queues() -> None:
    grant = Grant("app:a", None, "a", frozenset({"q"}), frozenset(VERBS))
    of_a_queue = {Permission.CONFIGURE, Permission.APPEND, Permission.VIEW, Permission.DELETE, Permission.COMMIT}
    of_a_queue |= {Permission.RECEIVE}

    assert of_a_queue <= carried(grant)
    for name in ("Q", "q2", "", "q "):
        assert carried(grant, name=name) == set()
    assert not permits(Permission.LIST, Identity([grant]), "a", "", None)
    assert not permits(Permission.CREATE, Identity([grant]), "a", "", None)
    assert not permits(Permission.MINE, Identity([grant]), "a", "", None)


def test_a_queue_without_a_name_carries_nothing() -> None:
    """Such a name came from a variable that was not set; calls about no single queue have none either."""
    grant = Grant("app:a", None, "a", frozenset({""}), frozenset(VERBS))

    assert carried(grant, name="", queue=None) == set()


def test_an_application_restricts_to_its_paths() -> None:
    joe = Grant("bid:joe@example.org", None, "a", None, frozenset(VERBS))

    assert Permission.VIEW in carried(joe, queue=NAMING)
    assert carried(joe, application="b", queue=NAMING) == set()
    assert carried(Grant("app:b", None, "a", None, frozenset(VERBS)), application="b") == set()


def test_a_restricted_credential_adds_nothing_to_a_whole_one_and_takes_nothing() -> None:
    part = Grant("app:a", None, "a", frozenset({"other"}), frozenset({"read"}))
    whole = Grant("bid:joe@example.org")

    for permission in ALL:
        both = permits(permission, Identity([part, whole]), "a", "q", NAMING)
        assert both == permits(permission, Identity([whole]), "a", "q", NAMING)


def test_the_same_principal_twice_carries_what_either_does() -> None:
    read = Grant("app:a", None, "a", frozenset({"q"}), frozenset({"read"}))
    write = Grant("app:a", None, "a", frozenset({"p"}), frozenset({"append"}))
    both = Identity([read, write])

    assert permits(Permission.VIEW, both, "a", "q", OWN)
    assert permits(Permission.APPEND, both, "a", "p", OWN)
    assert not permits(Permission.APPEND, both, "a", "q", OWN)
    assert not permits(Permission.VIEW, both, "a", "p", OWN)


def test_who_proves_nothing_may_read_what_is_public_and_nothing_else() -> None:
    assert {each for each in ALL if permits(each, ANONYMOUS, "a", "q", PUBLIC)} == {Permission.VIEW}
    assert {each for each in ALL if permits(each, ANONYMOUS, "a", "q", OWN)} == set()


def test_every_permission_but_getting_tokens_has_its_verb() -> None:
    assert set(WORD) == set(ALL) - {Permission.MINT, Permission.APPLICATIONS}
    assert set(WORD.values()) == set(VERBS)


def test_each_gets_tokens_for_itself_and_an_application_for_its_users() -> None:
    def who(*principals: str, application: str = "a") -> Sequence[str]:
        asked = Identity([Grant(principal) for principal in principals])
        wanted = ("app:a", "app:b", "bid:joe@example.org", "oidc:ann@example.org", "operator:root")
        return [one for one in wanted if may_mint(asked, application, one)]

    assert who("app:a") == ["app:a", "bid:joe@example.org", "oidc:ann@example.org"]
    assert who("app:b") == ["app:b"]
    assert who("bid:joe@example.org") == ["bid:joe@example.org"]
    assert who("operator:root") == ["bid:joe@example.org", "oidc:ann@example.org"]
    assert who() == []
    token = Identity([Grant("app:a", None, "a", None, frozenset(VERBS))])
    assert not may_mint(token, "a", "app:a")
    assert not may_mint(token, "a", "bid:joe@example.org")
