"""Metadata: queues and their settings, and the keys of applications."""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from queuey.model import Consistency, PrincipalKey, Queue, QueueKind
from queuey.model.lease_groups import NO_DEFAULTS
from queuey.storage import MetadataStore
from queuey.storage.contract.common import StoreContract, done, drive_histories
from queuey.storage.contract.history import MetadataHistory

NAMES = ["A", "B", "Z", "_", "a", "a-", "a.", "a0", "aa", "b", "z", "é", "\uffee", "\U0001f600"]
"""Names in code point order. The byte order of UTF-16, of a locale, or without case would differ."""


def queue(name: str = "q", application: str = "app", **settings: object) -> Queue:
    return Queue(application, name, uuid4(), 137_000_000_000_000_000)._replace(**settings)  # type: ignore[arg-type]


def key(digest: bytes, principal: str = "app:app", label: str = "abcdef", created_ticks: int = 1) -> PrincipalKey:
    return PrincipalKey(principal, digest * 32, label, created_ticks)


def at_once(work: Callable[[int], object], threads: int = 6) -> None:
    started = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


class Creating(StoreContract):
    """Queues are created, found, and given other settings."""

    def test_a_queue_is_found_as_it_was_created(self, metadata: MetadataStore) -> None:
        made = queue(
            partitions=200,
            kind=QueueKind.PUBLIC,
            consistency=Consistency.VERY_STRONG,
            principals=("bid:b@example.com", "app:a", "bid:ü@example.com", "app:a"),
            leases=NO_DEFAULTS.changed(
                {"order": "key", "paused_reason": "ü", "start": "end", "backoff": {"first": 5.0}}
            ),
        )

        assert done(metadata.create_queue(made)) == (made, True)

        found = done(metadata.find_queue("app", "q"))
        assert found == made
        assert found is not None
        assert isinstance(found.kind, QueueKind)
        assert isinstance(found.consistency, Consistency)

    def test_a_queue_that_exists_is_answered_and_left_as_it_is(self, metadata: MetadataStore) -> None:
        first = queue(partitions=3)
        done(metadata.create_queue(first))

        assert done(metadata.create_queue(queue(partitions=7))) == (first, False)
        assert done(metadata.find_queue("app", "q")) == first

    def test_creating_the_same_incarnation_again_is_no_conflict(self, metadata: MetadataStore) -> None:
        """So a creation whose answer was lost can be repeated."""
        made = queue()
        done(metadata.create_queue(made))

        assert done(metadata.create_queue(made)) == (made, True)

    def test_of_many_who_create_a_queue_at_once_one_does(self, metadata: MetadataStore) -> None:
        made = [queue() for _ in range(6)]
        answers: list[tuple[Queue, bool]] = []

        at_once(lambda number: answers.append(done(metadata.create_queue(made[number]))))

        assert sorted(created for _, created in answers) == [False] * 5 + [True]
        assert {stored for stored, _ in answers} == {done(metadata.find_queue("app", "q"))}

    def test_a_queue_that_nobody_created_is_not_found(self, metadata: MetadataStore) -> None:
        done(metadata.create_queue(queue()))

        assert done(metadata.find_queue("app", "other")) is None
        assert done(metadata.find_queue("other", "q")) is None

    def test_names_match_exactly(self, metadata: MetadataStore) -> None:
        done(metadata.create_queue(queue("Naïve-1")))

        for name in ("naïve-1", "NAÏVE-1", "Naïve", "Naïve-1 ", " Naïve-1", "Nai\u0308ve-1", "Naïve_1", "%", "Na*", ""):
            assert done(metadata.find_queue("app", name)) is None
        for application in ("App", "app ", "ap", "%", ""):
            assert done(metadata.find_queue(application, "Naïve-1")) is None

    def test_applications_share_nothing(self, metadata: MetadataStore) -> None:
        mine, theirs = queue("q", "mine"), queue("q", "theirs")

        assert done(metadata.create_queue(mine)) == (mine, True)
        assert done(metadata.create_queue(theirs)) == (theirs, True)

        done(metadata.remove_queue(mine))
        assert done(metadata.find_queue("theirs", "q")) == theirs
        assert [*done(metadata.list_queues("theirs"))] == [theirs]
        assert [*done(metadata.list_queues("mine"))] == []

    def test_names_are_never_joined(self, metadata: MetadataStore) -> None:
        """An application 'a:b' with queue 'c' is not application 'a' with queue 'b:c'."""
        for application, name in (("a:b", "c"), ("a", "b:c"), ("a/b", "c"), ("a", "b/c")):
            assert done(metadata.create_queue(queue(name, application)))[1]

        assert [found.name for found in done(metadata.list_queues("a"))] == ["b/c", "b:c"]

    def test_settings_are_replaced_if_they_are_still_the_old_ones(self, metadata: MetadataStore) -> None:
        old = queue(partitions=2)
        new = old._replace(
            partitions=5,
            kind=QueueKind.PUBLIC,
            consistency=Consistency.WEAK,
            principals=("app:b",),
            leases=NO_DEFAULTS.changed({"visibility": 5.0}),
            attributes='{"DelaySeconds": "5"}',
        )
        done(metadata.create_queue(old))

        assert done(metadata.replace_queue(old, new)) is True
        assert done(metadata.find_queue("app", "q")) == new

    @pytest.mark.parametrize(
        "stale",
        [
            {"partitions": 9},
            {"kind": QueueKind.PUBLIC},
            {"consistency": Consistency.WEAK},
            {"principals": ("app:a",)},
            {"uuid": UUID(int=1)},
        ],
    )
    def test_settings_that_changed_meanwhile_are_not_replaced(
        self, metadata: MetadataStore, stale: dict[str, object]
    ) -> None:
        stored = queue(partitions=2)
        done(metadata.create_queue(stored))
        old = stored._replace(**stale)  # type: ignore[arg-type]

        assert done(metadata.replace_queue(old, old._replace(partitions=20))) is False
        assert done(metadata.find_queue("app", "q")) == stored

    def test_a_queue_that_is_gone_is_not_replaced(self, metadata: MetadataStore) -> None:
        old = queue()
        done(metadata.create_queue(old))
        done(metadata.remove_queue(old))

        assert done(metadata.replace_queue(old, old._replace(partitions=2))) is False
        assert done(metadata.find_queue("app", "q")) is None

    def test_of_many_who_replace_at_once_none_undoes_anothers_change(self, metadata: MetadataStore) -> None:
        done(metadata.create_queue(queue(partitions=1)))

        def grow(_number: int) -> None:
            for _ in range(5):
                while True:
                    old = done(metadata.find_queue("app", "q"))
                    assert old is not None
                    if done(metadata.replace_queue(old, old._replace(partitions=old.partitions + 1))):
                        break

        at_once(grow, threads=4)

        grown = done(metadata.find_queue("app", "q"))
        assert grown is not None
        assert grown.partitions == 1 + 4 * 5


class Removing(StoreContract):
    """Queues are removed."""

    def test_a_removed_queue_is_gone_and_its_incarnation_remembered(self, metadata: MetadataStore) -> None:
        made = queue()
        done(metadata.create_queue(made))

        assert done(metadata.remove_queue(made)) is True

        assert done(metadata.find_queue("app", "q")) is None
        assert [*done(metadata.list_queues("app"))] == []
        assert [*done(metadata.removed())] == [made.uuid]

    def test_a_queue_is_removed_whatever_its_settings_have_become(self, metadata: MetadataStore) -> None:
        old = queue()
        done(metadata.create_queue(old))
        done(metadata.replace_queue(old, old._replace(partitions=7)))

        assert done(metadata.remove_queue(old)) is True
        assert done(metadata.find_queue("app", "q")) is None

    def test_a_queue_is_removed_once(self, metadata: MetadataStore) -> None:
        made = queue()
        done(metadata.create_queue(made))
        answers: list[bool] = []

        at_once(lambda _: answers.append(done(metadata.remove_queue(made))))

        assert sorted(answers) == [False] * 5 + [True]
        assert [*done(metadata.removed())] == [made.uuid]

    def test_a_removal_of_what_is_gone_is_not_remembered_again(self, metadata: MetadataStore) -> None:
        made = queue()
        done(metadata.create_queue(made))
        done(metadata.remove_queue(made))
        done(metadata.forget_removed(made.uuid))

        assert done(metadata.remove_queue(made)) is False
        assert done(metadata.remove_queue(queue("never"))) is False
        assert [*done(metadata.removed())] == []

    def test_a_former_incarnation_cannot_remove_or_replace_its_successor(self, metadata: MetadataStore) -> None:
        """G9."""
        former, successor = queue(), queue()
        done(metadata.create_queue(former))
        done(metadata.remove_queue(former))
        assert done(metadata.create_queue(successor)) == (successor, True)

        assert done(metadata.remove_queue(former)) is False
        assert done(metadata.replace_queue(former, former._replace(partitions=2))) is False
        assert done(metadata.find_queue("app", "q")) == successor

    def test_removed_incarnations_are_told_until_they_are_forgotten(self, metadata: MetadataStore) -> None:
        made = [queue(f"q{number}") for number in range(5)]
        for one in made:
            done(metadata.create_queue(one))
            done(metadata.remove_queue(one))

        assert {*done(metadata.removed())} == {one.uuid for one in made}
        assert len(done(metadata.removed(limit=2))) == 2
        for _ in range(5):
            done(metadata.forget_removed(done(metadata.removed(limit=1))[0]))
        done(metadata.forget_removed(made[0].uuid))
        assert [*done(metadata.removed())] == []


class Listing(StoreContract):
    """Queues page by page: all of an application, and those that name a principal."""

    def test_queues_are_listed_in_code_point_order(self, metadata: MetadataStore) -> None:
        for name in (*NAMES[::2], *NAMES[1::2]):
            done(metadata.create_queue(queue(name)))

        assert [found.name for found in done(metadata.list_queues("app"))] == NAMES

    def test_a_listing_begins_with_its_start(self, metadata: MetadataStore) -> None:
        for name in NAMES:
            done(metadata.create_queue(queue(name)))

        for at, name in enumerate(NAMES):
            assert [found.name for found in done(metadata.list_queues("app", start=name))] == NAMES[at:]
        assert [found.name for found in done(metadata.list_queues("app", start="a1"))] == NAMES[NAMES.index("aa") :]
        assert [*done(metadata.list_queues("app", start="\U0001f601"))] == []

    def test_a_listing_ends_at_its_limit_and_pages_join(self, metadata: MetadataStore) -> None:
        for name in NAMES:
            done(metadata.create_queue(queue(name)))

        listed, start = list[str](), ""
        while page := done(metadata.list_queues("app", start=start, limit=3)):
            assert len(page) <= 3
            listed += [found.name for found in page]
            start = listed[-1] + "\0"

        assert listed == NAMES

    def test_a_listing_has_the_settings_of_now(self, metadata: MetadataStore) -> None:
        old = queue()
        new = old._replace(partitions=9, principals=("app:x",))
        done(metadata.create_queue(old))
        done(metadata.replace_queue(old, new))

        assert [*done(metadata.list_queues("app"))] == [new]

    def test_an_unknown_application_has_no_queues(self, metadata: MetadataStore) -> None:
        done(metadata.create_queue(queue()))

        assert [*done(metadata.list_queues("other"))] == []

    def test_a_principal_is_told_the_queues_that_name_it(self, metadata: MetadataStore) -> None:
        mine = [queue("b", principals=("app:x", "bid:me@example.com")), queue("a", principals=("bid:me@example.com",))]
        others = [queue("c"), queue("d", principals=("bid:Me@example.com", "bid:me@example.co", "me@example.com"))]
        for one in (*mine, *others):
            done(metadata.create_queue(one))

        assert [*done(metadata.list_named("app", "bid:me@example.com"))] == [mine[1], mine[0]]
        assert [*done(metadata.list_named("app", "app:x"))] == [mine[0]]
        assert [*done(metadata.list_named("app", ""))] == []

    def test_a_queue_that_names_somebody_twice_is_told_once(self, metadata: MetadataStore) -> None:
        made = queue(principals=("bid:ü@example.com", "app:x", "bid:ü@example.com"))
        done(metadata.create_queue(made))
        assert [*done(metadata.list_named("app", "bid:ü@example.com"))] == [made]

        done(metadata.remove_queue(made))

        assert [*done(metadata.list_named("app", "bid:ü@example.com"))] == []

    def test_whom_a_queue_names_follows_its_replacements(self, metadata: MetadataStore) -> None:
        old = queue(principals=("app:stays", "app:goes"))
        new = old._replace(principals=("app:comes", "app:stays"), partitions=3)
        done(metadata.create_queue(old))
        assert done(metadata.replace_queue(old, new)) is True

        assert done(metadata.replace_queue(old, old._replace(principals=("app:never",)))) is False

        told = {who: [*done(metadata.list_named("app", f"app:{who}"))] for who in ("stays", "goes", "comes", "never")}
        assert told == {"stays": [new], "goes": [], "comes": [new], "never": []}
        nobody = new._replace(principals=())
        assert done(metadata.replace_queue(new, nobody)) is True
        assert [*done(metadata.list_named("app", "app:stays"))] == []
        assert done(metadata.replace_queue(nobody, new)) is True
        assert [*done(metadata.list_named("app", "app:stays"))] == [new]

    def test_a_removed_queue_names_nobody_and_its_successor_whom_it_names(self, metadata: MetadataStore) -> None:
        former = queue(principals=("app:x", "app:y"))
        successor = queue(principals=("app:y",), partitions=2)
        done(metadata.create_queue(former))
        done(metadata.remove_queue(former))
        assert [*done(metadata.list_named("app", "app:y"))] == []

        done(metadata.create_queue(successor))

        assert done(metadata.remove_queue(former)) is False
        assert [*done(metadata.list_named("app", "app:x"))] == []
        assert [*done(metadata.list_named("app", "app:y"))] == [successor]

    def test_a_creation_that_finds_a_queue_names_nobody_new(self, metadata: MetadataStore) -> None:
        first = queue(principals=("app:first",))
        done(metadata.create_queue(first))

        assert done(metadata.create_queue(queue(principals=("app:second",)))) == (first, False)

        assert [*done(metadata.list_named("app", "app:second"))] == []
        assert [*done(metadata.list_named("app", "app:first"))] == [first]

    def test_a_principal_is_told_of_one_applications_queues(self, metadata: MetadataStore) -> None:
        """Nor are application, principal and name ever joined."""
        made = [
            queue("q", "mine", principals=("app:x",)),
            queue("q", "theirs", principals=("app:x",)),
            queue("x:q", "mine", principals=("app",)),
        ]
        for one in made:
            done(metadata.create_queue(one))

        assert [*done(metadata.list_named("mine", "app:x"))] == [made[0]]
        assert [*done(metadata.list_named("theirs", "app:x"))] == [made[1]]
        assert [*done(metadata.list_named("other", "app:x"))] == []

    def test_pages_of_what_names_a_principal_join_in_code_point_order(self, metadata: MetadataStore) -> None:
        for name in (*NAMES[::2], *NAMES[1::2]):
            done(metadata.create_queue(queue(name, principals=("app:x", "app:y"))))
            done(metadata.create_queue(queue(f"{name}+", principals=("app:y",))))

        listed, start = list[str](), ""
        while page := done(metadata.list_named("app", "app:x", start=start, limit=3)):
            listed += [found.name for found in page]
            start = listed[-1] + "\0"

        assert listed == NAMES
        assert [found.name for found in done(metadata.list_named("app", "app:x", start="a-", limit=2))] == ["a-", "a."]
        assert len(done(metadata.list_named("app", "app:y"))) == 2 * len(NAMES)


class Keeping(StoreContract):
    """Application keys."""

    def test_keys_are_told_oldest_first(self, metadata: MetadataStore) -> None:
        keys = [key(b"c", created_ticks=3), key(b"a", "other", created_ticks=1), key(b"b", created_ticks=2)]
        for one in keys:
            done(metadata.add_key(one))

        assert [*done(metadata.keys())] == [keys[1], keys[2], keys[0]]

    def test_the_same_digest_again_changes_nothing(self, metadata: MetadataStore) -> None:
        first = key(b"a", "app", "first", 1)
        done(metadata.add_key(first))

        done(metadata.add_key(first))
        done(metadata.add_key(key(b"a", "other", "second", 2)))

        assert [*done(metadata.keys())] == [first]

    def test_keys_are_removed_by_application_and_label(self, metadata: MetadataStore) -> None:
        gone = [key(b"a", "app", "same__", 1), key(b"b", "app", "same__", 2)]
        kept = [key(b"c", "app", "other_", 3), key(b"d", "other", "same__", 4), key(b"e", "app", "Same__", 5)]
        for one in (*gone, *kept):
            done(metadata.add_key(one))

        assert done(metadata.remove_key("app", "same__")) == 2
        assert done(metadata.remove_key("app", "same__")) == 0
        assert [*done(metadata.keys())] == kept

    def test_a_digest_may_be_any_bytes(self, metadata: MetadataStore) -> None:
        made = PrincipalKey("app", bytes(range(0, 256, 8)), "label", 1)
        done(metadata.add_key(made))

        assert [*done(metadata.keys())] == [made]


class MetadataStoreContract(Creating, Removing, Listing, Keeping):
    """Every sentence of :class:`~queuey.storage.MetadataStore`."""

    def test_a_healthy_metadata_store_has_no_problems(self, metadata: MetadataStore) -> None:
        done(metadata.create_queue(queue()))

        assert list(metadata.problems()) == []

    def test_a_close_of_metadata_may_be_repeated(self, metadata: MetadataStore) -> None:
        done(metadata.create_queue(queue()))

        metadata.close()
        metadata.close()

    def test_any_history_of_metadata_is_as_the_model_says(self, metadata: MetadataStore) -> None:
        drive_histories(lambda: MetadataHistory(metadata), self.histories)
