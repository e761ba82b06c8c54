"""Histories: any sequence of calls, compared with a plain dict."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from queuey.clock import ManualClock
from queuey.errors import InvalidParameter, KeyReused, QueueNotFound
from queuey.ids import MAX_ID, ZERO_ID, MessageId
from queuey.model import Appended, AppendRequest, Draft, IdempotencyKey, Message, PartitionState, PrincipalKey, Queue
from queuey.model.values import IDEMPOTENCY_SECONDS
from queuey.storage import MessageStore, MetadataStore
from queuey.storage.contract.common import SECOND, STRONG, QueueLog, client_id, done

Place = tuple[int, MessageId]

_PARTITIONS = st.integers(1, 2)
_ANY = st.integers(0, 1000)
"""Chooses one of the locations known so far; it wraps around."""
_DELAYS = st.sampled_from([None, None, None, -5, 10, 10, 11, 20])
"""Counted from the last full ten seconds, so that many messages are due at once."""
_DRAFTS = st.lists(
    st.tuples(_PARTITIONS, st.integers(0, 3), st.sampled_from([2, 30, 200_000]), _DELAYS), min_size=1, max_size=5
)
_CLOCK_STEP_SECONDS = 5


class PartitionHistory(RuleBasedStateMachine):
    """Any history of one queue's two partitions reads like a dict."""

    def __init__(self, store: MessageStore, clock: ManualClock) -> None:
        super().__init__()
        clock.advance(3600)  # beyond any step back of an earlier history
        self.store = store
        self.clock = clock
        self.served = 0
        self.bodies = 0
        self._begin()

    def _begin(self) -> None:
        self.log = QueueLog(self.store, self.clock, partitions=2)
        self.live: dict[Place, Message] = {}
        self.places: list[Place] = [(1, client_id(self.clock.now_ticks() - 60 * SECOND))]
        """All ids that were ever used, removed ones included."""
        self.kept: dict[str, tuple[IdempotencyKey, Appended, int]] = {}

    # What the model expects

    def _expect(self, partition: int, watermark: int) -> list[Message]:
        """Live messages of a partition, those due later included."""
        here = [message for (number, _), message in self.live.items() if number == partition]
        return sorted(message for message in here if message.expires_ticks > watermark)

    def _bound(self, any_: int) -> MessageId:
        bounds = [ZERO_ID, MAX_ID, *(id_ for _, id_ in self.places)]
        return bounds[any_ % len(bounds)]

    def _drafts(self, wanted: Sequence[tuple[int, int, int, int | None]]) -> list[Draft]:
        made = []
        for partition, size, ttl_seconds, delay in wanted:
            self.bodies += 1
            body = (b"%d " % self.bodies) * size
            tens = self.clock.now_ticks() // (10 * SECOND) * 10 * SECOND
            due = None if delay is None else tens + delay * SECOND
            content_type, key = ("text/plain", "key") if size == 1 else (None, None)
            made.append(Draft(partition, body, ttl_seconds, content_type, key, due))
        return made

    def _stored(self, drafts: Sequence[Draft], appended: Appended) -> None:
        """Check the ids of new messages, and put the messages into the model."""
        assert not appended.repeated
        assert [place.partition for place in appended.placed] == [draft.partition for draft in drafts]
        last: dict[tuple[int, int] | None, MessageId] = {}
        for draft, place in zip(drafts, appended.placed, strict=True):
            due = draft.due_ticks if draft.due_ticks is not None and draft.due_ticks > self.served else None
            # Ids of one moment are ordered only within a partition (G4).
            among = None if due is None else (place.partition, due)
            assert place.id > last.get(among, ZERO_ID)
            assert place.id.ticks > self.served if due is None else place.id.ticks >= due
            last[among] = place.id
            where = (place.partition, place.id)
            assert where not in self.places
            expires = place.id.ticks + draft.ttl_seconds * SECOND
            self.live[where] = Message(*place.id, expires, draft.content_type, draft.key, draft.body)
            self.places.append(where)

    # The steps

    @rule(wanted=_DRAFTS)
    def append(self, wanted: list[tuple[int, int, int, int | None]]) -> None:
        drafts = self._drafts(wanted)
        self._stored(drafts, self.log.append(*drafts))

    @rule(wanted=_DRAFTS, key=st.sampled_from("ab"), digest=st.sampled_from([b"1", b"2"]))
    def append_once(self, wanted: list[tuple[int, int, int, int | None]], key: str, digest: bytes) -> None:
        key_given, drafts, now = IdempotencyKey(key, digest), self._drafts(wanted), self.clock.now_ticks()
        known, answer, expires = self.kept.get(key, (None, None, 0))
        assume(abs(expires - now) > 60 * SECOND)  # a day is not measured to the second if clocks step
        if known is None or expires < now:
            appended = self.log.append(*drafts, idempotency=key_given)
            self._stored(drafts, appended)
            self.kept[key] = (key_given, appended, now + IDEMPOTENCY_SECONDS * SECOND)
        elif known == key_given:
            assert answer is not None
            repeated = self.log.append(*drafts, idempotency=key_given)
            assert (list(repeated.placed), repeated.repeated) == (list(answer.placed), True)
        else:
            with pytest.raises(KeyReused):
                self.log.append(*drafts, idempotency=key_given)

    @rule(
        partition=_PARTITIONS,
        after=st.one_of(st.just(0), _ANY),
        upto=st.one_of(st.just(1), _ANY),
        limit=st.integers(1, 5),
        max_bytes=st.sampled_from([1 << 20, 1 << 20, 1, 7]),
        newest_first=st.booleans(),
    )
    def read(self, partition: int, after: int, upto: int, limit: int, max_bytes: int, newest_first: bool) -> None:
        watermark = self.log.watermark()
        low, high = sorted((self._bound(after), self._bound(upto)))
        high = min(high, MessageId.last_of(watermark))
        span = [message for message in self._expect(partition, watermark) if low < message.id <= high]
        if newest_first:
            span.reverse()
        fitting = [
            message
            for at, message in enumerate(span[:limit])
            if at == 0 or sum(len(one.body) for one in span[: at + 1]) <= max_bytes
        ]

        page = self.log.read(
            partition, low, high, limit=limit, max_bytes=max_bytes, newest_first=newest_first, now_ticks=watermark
        )

        assert list(page.messages) == fitting
        assert page.more == (len(fitting) < len(span))

    @rule(partition=_PARTITIONS)
    def read_everything(self, partition: int) -> None:
        watermark = self.log.watermark()

        page = self.log.read(partition, now_ticks=watermark)

        assert list(page.messages) == [m for m in self._expect(partition, watermark) if m.ticks <= watermark]
        assert not page.more

    @rule(
        after=st.one_of(st.just(0), _ANY),
        upto=st.one_of(st.just(1), _ANY),
        limit=st.integers(0, 9),
        step=st.integers(0, 4),
    )
    def count_span(self, after: int, upto: int, limit: int, step: int) -> None:
        watermark = self.log.watermark()
        low, high = sorted((self._bound(after), self._bound(upto)))
        high = min(high, MessageId.last_of(watermark))
        ids = [message.id for message in self._expect(1, watermark) if low < message.id <= high]
        split_points = ids[:limit][step - 1 :: step] if step else []

        found = self.log.count_span(low, high, limit=limit, step=step)

        assert found == (ids[-1] if ids else None, min(len(ids), limit), len(ids) > limit, split_points)

    @rule(wanted=st.lists(_ANY, min_size=1, max_size=4))
    def fetch(self, wanted: list[int]) -> None:
        places = [self.places[any_ % len(self.places)] for any_ in wanted]
        watermark = self.log.watermark()
        found = [self.live.get(place) for place in places]

        assert list(self.log.fetch(*places)) == [
            m if m is not None and m.expires_ticks > watermark else None for m in found
        ]

    @rule(
        wanted=_ANY,
        fresh=st.sampled_from([None, -3600, -1, 0, 15]),
        ttl_seconds=st.sampled_from([2, 30, 200_000]),
        key=st.sampled_from([None, "k", "schlüssel"]),
    )
    def put(self, wanted: int, fresh: int | None, ttl_seconds: int, key: str | None) -> None:
        watermark = self.log.watermark()
        partition, id_ = self.places[wanted % len(self.places)]
        if fresh is not None:
            id_ = client_id(watermark + fresh * SECOND, len(self.places))
        self.bodies += 1
        body = b"put %d" % self.bodies

        served = self.store.watermark(STRONG)
        before, named = self.live.get((partition, id_)), key
        assume(before is None or not self.clock.now_ticks() < before.expires_ticks <= watermark)  # either would do
        if before is not None and before.expires_ticks > watermark:
            if key not in (None, before.key):
                with pytest.raises(InvalidParameter):
                    self.log.put((partition, id_), body=body, key=key)
                assert self.log.fetch((partition, id_)) == [before]
                return
            key = before.key
        late = self.log.put((partition, id_), body=body, content_type="a/b", key=named, ttl_seconds=ttl_seconds)

        assert late == (id_.ticks <= served)
        (stored,) = self.log.fetch((partition, id_))
        assert stored is not None
        assert stored[3:] == ("a/b", key, body, None)
        expires = max(watermark, id_.ticks) + ttl_seconds * SECOND
        assert abs(stored.expires_ticks - expires) <= SECOND + _CLOCK_STEP_SECONDS * SECOND
        self.live[partition, id_] = stored
        self.places.append((partition, id_))

    @rule(wanted=st.lists(_ANY, min_size=1, max_size=3))
    def delete(self, wanted: list[int]) -> None:
        places = [self.places[any_ % len(self.places)] for any_ in wanted]

        self.log.delete(*places)

        for place in places:
            self.live.pop(place, None)

    @rule()
    def inspect(self) -> None:
        watermark = self.log.watermark()
        expected = []
        for partition in (2, 1):
            live = self._expect(partition, watermark)
            scheduled = sum(message.ticks > watermark for message in live)
            oldest, newest = (live[0].id, live[-1].id) if live else (None, None)
            size = sum(len(message.body) for message in live)
            expected.append(PartitionState(len(live), scheduled, oldest, newest, size))

        assert list(self.log.inspect(2, 1)) == expected

    @rule(seconds=st.sampled_from([0.0000001, 0.5, 3, 12, 7200, 100_000]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def set_the_clock_back(self) -> None:
        self.clock.step(-_CLOCK_STEP_SECONDS)

    @precondition(lambda self: len(self.places) > 10)
    @rule()
    def drop_and_make_anew(self) -> None:
        done(self.store.drop(self.log.queue.uuid))

        with pytest.raises(QueueNotFound):
            done(self.store.append(AppendRequest(self.log.queue, [Draft(1, b"ghost", 3600)])))
        assert self.log.bodies(1) == self.log.bodies(2) == []
        self._begin()

    @invariant()
    def the_watermark_never_falls(self) -> None:
        watermark = self.store.watermark(STRONG)
        assert watermark >= self.served
        self.served = watermark


_APPLICATIONS = st.sampled_from(["app", "App", "app2"])
_NAMES = st.sampled_from(["", "a", "B", "b", "a-", "aa", "é"])
_PRINCIPALS = st.sampled_from([(), (), ("app:a",), ("a", "b"), ("b", "a", "b")])


class MetadataHistory(RuleBasedStateMachine):
    """Any history of queues and keys reads like dicts.

    The applications are the history's own, since a store may be shared.
    """

    def __init__(self, store: MetadataStore) -> None:
        super().__init__()
        self.store = store
        self.prefix = f"{uuid4().hex}-"
        self.queues: dict[tuple[str, str], Queue] = {}
        self.former: list[Queue] = []
        """Queues as they were at some time, in any state: a server may still have them in its cache."""
        self.removed: set[UUID] = set()
        self.keys: dict[bytes, PrincipalKey] = {}

    @rule(application=_APPLICATIONS, name=_NAMES, partitions=st.integers(1, 3), principals=_PRINCIPALS)
    def create(self, application: str, name: str, partitions: int, principals: tuple[str, ...]) -> None:
        made = Queue(self.prefix + application, name, uuid4(), 1, partitions, principals=principals)
        known = self.queues.get((made.application, name))

        assert done(self.store.create_queue(made)) == ((made, True) if known is None else (known, False))

        if known is None:
            self.queues[made.application, name] = made
            self.former.append(made)

    @rule(application=_APPLICATIONS, name=_NAMES)
    def find(self, application: str, name: str) -> None:
        application = self.prefix + application
        assert done(self.store.find_queue(application, name)) == self.queues.get((application, name))

    @precondition(lambda self: self.former)
    @rule(which=_ANY, partitions=st.integers(1, 3), principals=_PRINCIPALS)
    def replace(self, which: int, partitions: int, principals: tuple[str, ...]) -> None:
        old = self.former[which % len(self.former)]
        new = old._replace(partitions=partitions, principals=principals)
        at = (old.application, old.name)

        replaced = done(self.store.replace_queue(old, new))

        assert replaced == (self.queues.get(at) == old)
        if replaced:
            self.queues[at] = new
            self.former.append(new)

    @precondition(lambda self: self.former)
    @rule(which=_ANY)
    def remove(self, which: int) -> None:
        queue = self.former[which % len(self.former)]
        stored = self.queues.get((queue.application, queue.name))
        there = stored is not None and stored.uuid == queue.uuid

        assert done(self.store.remove_queue(queue)) == there

        if there:
            del self.queues[queue.application, queue.name]
            self.removed.add(queue.uuid)

    @precondition(lambda self: self.former)
    @rule(which=_ANY)
    def forget(self, which: int) -> None:
        queue = self.former[which % len(self.former)]
        done(self.store.forget_removed(queue.uuid))
        self.removed.discard(queue.uuid)

    @rule(application=_APPLICATIONS, start=_NAMES, limit=st.integers(1, 4))
    def list(self, application: str, start: str, limit: int) -> None:
        application = self.prefix + application
        names = sorted(name for at, name in self.queues if at == application and name >= start)
        expected = [self.queues[application, name] for name in names[:limit]]

        assert [*done(self.store.list_queues(application, start=start, limit=limit))] == expected

    @rule(application=_APPLICATIONS, principal=st.sampled_from(["app:a", "a", "b", "c"]), start=_NAMES)
    def list_named(self, application: str, principal: str, start: str) -> None:
        application = self.prefix + application
        names = sorted(name for at, name in self.queues if at == application and name >= start)
        expected = [queue for name in names if principal in (queue := self.queues[application, name]).principals]

        for limit in (2, 100):
            found = done(self.store.list_named(application, principal, start=start, limit=limit))
            assert [*found] == expected[:limit]

    @rule(application=_APPLICATIONS, number=st.integers(0, 4), label=st.sampled_from("xy"))
    def add_key(self, application: str, number: int, label: str) -> None:
        digest = self.prefix.encode() + b"%d" % number
        key = PrincipalKey(self.prefix + application, digest, label, number)
        done(self.store.add_key(key))
        self.keys.setdefault(digest, key)

    @rule(application=_APPLICATIONS, label=st.sampled_from("xy"))
    def remove_key(self, application: str, label: str) -> None:
        application = self.prefix + application
        gone = [key for key in self.keys.values() if (key.principal, key.label) == (application, label)]

        assert done(self.store.remove_key(application, label)) == len(gone)

        for key in gone:
            del self.keys[key.digest]

    @invariant()
    def nothing_is_forgotten(self) -> None:
        ours = {queue.uuid for queue in self.former}
        assert {queue for queue in done(self.store.removed(10_000)) if queue in ours} == self.removed
        mine = [key for key in done(self.store.keys()) if key.principal.startswith(self.prefix)]
        assert mine == sorted(self.keys.values(), key=lambda key: key.created_ticks)
