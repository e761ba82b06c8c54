"""Actions on queues: make, find, list, change, tag, empty and remove them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from queuey.errors import QueueExists, QueueNotFound
from queuey.ids import EPOCH_TICKS, TICKS_PER_SECOND
from queuey.model import Queue, Retention
from queuey.model.lease_groups import ORDER_BY_KEY, GroupSettings
from queuey.security.access_keys import account_of
from queuey.security.permissions import Permission, permits
from queuey.service.backlogs import count_backlog
from queuey.service.queues import QueueSettings
from queuey.service.turns import LOOK_ROWS, Turns
from queuey.sqs.attributes import (
    GROUP,
    MAX_TAGS,
    QueueAttributes,
    attributes_of,
    modified_seconds,
    parse_arn,
    redrive_allow_policy,
    redrive_policy,
)
from queuey.sqs.errors import (
    SqsError,
    access_denied,
    invalid_attribute_name,
    invalid_parameter,
    no_such_queue,
    shown,
)
from queuey.sqs.request import SqsRequest, is_sqs_name

__all__ = [
    "change_attributes",
    "create_queue",
    "delete_queue",
    "get_queue_attributes",
    "get_queue_url",
    "list_dead_letter_source_queues",
    "list_queue_tags",
    "list_queues",
    "make_fair",
    "set_queue_attributes",
    "sources_of",
    "tag_queue",
    "unix_now",
    "untag_queue",
    "visible_messages",
]

_NAME_RULE = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
_FIFO_NAME_RULE = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo suffix "
    "and be 1 to 80 in length."
)
_MOST_LISTED = 1000
_PAGE = 500
_COUNTERS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesDelayed",
    "ApproximateNumberOfMessagesNotVisible",
)
_READ_ONLY = ("CreatedTimestamp", "LastModifiedTimestamp", "QueueArn")
_MAX_KEY, _MAX_VALUE = 128, 256
_CHANGE_SECONDS = 60
"""For this time at most, sends may not know of a change that has begun: ``[cassandra] cache_ms`` may be as much."""

Result = Mapping[str, Any]
_Change = Callable[[QueueAttributes], QueueAttributes]
_Follows = Callable[[QueueAttributes, GroupSettings], Mapping[str, Any]]
"""The settings of lease groups that a change decides, by the attributes behind it and by the settings that there are."""


async def create_queue(asked: SqsRequest) -> Result:
    """Make a queue, or find that there is one with the same attributes."""
    name, given = asked.values["QueueName"], asked.values.get("Attributes", {})
    if not is_sqs_name(name):
        raise invalid_parameter(_NAME_RULE)
    if not permits(Permission.CREATE, asked.call.identity, asked.application, name, None):
        raise access_denied()
    attributes = QueueAttributes({}).changed(given, is_new=True)
    if attributes.is_fifo != name.endswith(".fifo"):
        raise invalid_parameter(_FIFO_NAME_RULE if attributes.is_fifo else _NAME_RULE)
    attributes = replace(attributes, tags=_tagged({}, asked.values.get("tags", {})))
    _check_resources(asked, name, attributes)
    found = await asked.service.queues.find(asked.application, name)
    if found is None:
        await _check_dead_letters(asked, name, attributes)
        settings = QueueSettings(
            retention=Retention.ACKNOWLEDGED, leases=attributes.queue_settings, attributes=attributes.text
        )
        with suppress(QueueExists):
            made = await asked.service.queues.create(asked.application, name, settings, only_new=True)
            await _make_group(asked, made)
            return {"QueueUrl": asked.url_of(made)}
        found = await asked.service.queues.look_anew(asked.application, name)
        if found is None:
            raise no_such_queue()
    known = attributes_of(found)
    for each, value in attributes.given.items():
        if not known.has(each, value):
            text = f"A queue already exists with the same name and a different value for attribute {each}"
            raise SqsError("QueueNameExists", text)
    if found.attributes and await asked.service.leases.find(found, GROUP) is None:
        await _make_group(asked, found)  # whoever made the queue did not come so far
    return {"QueueUrl": asked.url_of(found)}


async def _make_group(asked: SqsRequest, queue: Queue) -> None:
    """From now on no message goes before SQS clients have deleted it, even if other groups have settled all there are."""
    await asked.service.leases.keep(queue, GROUP, asked.new_group(queue), None)


async def delete_queue(asked: SqsRequest) -> Result:
    """Remove a queue and its messages."""
    queue = await asked.queue(Permission.CONFIGURE)
    try:
        await asked.service.queues.delete(queue)
    except QueueNotFound:
        raise no_such_queue() from None
    return {}


async def get_queue_url(asked: SqsRequest) -> Result:
    """The URL of a queue by its name."""
    account, application = asked.values.get("QueueOwnerAWSAccountId"), asked.application
    if account is not None:
        application = asked.application_of(account)
    queue = await asked.named(Permission.VIEW, application, asked.values["QueueName"])
    return {"QueueUrl": asked.url_of(queue)}


async def list_queues(asked: SqsRequest) -> Result:
    """Queues of the caller by name."""
    if not permits(Permission.LIST, asked.call.identity, asked.application, "", None):
        raise access_denied()
    prefix, start = asked.values.get("QueueNamePrefix", ""), asked.values.get("NextToken") or ""
    found = _beginning(asked, asked.application, prefix, max(start, prefix))
    return await _listed(asked, found, "QueueUrls")


async def list_dead_letter_source_queues(asked: SqsRequest) -> Result:
    """Queues whose messages go to this one when they are given up."""
    queue = await asked.queue(Permission.CONFIGURE)
    return await _listed(asked, sources_of(asked, queue, asked.values.get("NextToken") or ""), "queueUrls")


async def _listed(asked: SqsRequest, queues: AsyncIterator[Queue], name: str) -> Result:
    """A page of queues, under a name. There is a token for the next one if a number was asked for and there are more."""
    most = asked.values.get("MaxResults")
    limit = most or _MOST_LISTED
    found: list[Queue] = []
    async for queue in queues:
        found.append(queue)
        if len(found) > limit:
            break
    result: dict[str, Any] = {name: [asked.url_of(queue) for queue in found[:limit]]}
    if most is not None and len(found) > limit:
        result["NextToken"] = found[limit].name
    return result


async def sources_of(asked: SqsRequest, dead: Queue, start: str = "", most: int = 0) -> AsyncIterator[Queue]:
    """The queues whose dead-letter queue this is, by name. All queues of the application are looked at.

    :param most: it ends behind as many; 0 for all.
    """
    found = 0
    async for one in _beginning(asked, dead.application, "", start):
        redrive = attributes_of(one).redrive if dead.name in one.attributes else None
        if redrive is not None and redrive.queue == dead.name:
            yield one
            found += 1
            if found == most:
                return


async def _beginning(asked: SqsRequest, application: str, prefix: str, start: str) -> AsyncIterator[Queue]:
    """Queues by name, from one on, as long as their names have the prefix."""
    turns = Turns()
    limit = min(asked.values.get("MaxResults", _PAGE) + 1, _PAGE)
    while True:
        page = await asked.service.queues.page(application, start=start, limit=limit)
        for queue in page:
            if turns.over:
                await turns.give()
            turns.count(LOOK_ROWS)
            if not queue.name.startswith(prefix):
                return
            yield queue
        if len(page) < limit:
            return
        start, limit = page[-1].name + "\0", _PAGE


async def get_queue_attributes(asked: SqsRequest) -> Result:
    """The attributes that are named, or all."""
    queue = await asked.queue(Permission.CONFIGURE)
    names = asked.values.get("AttributeNames", ())
    if not names:
        return {}
    for name in names:
        if name not in _KNOWN:
            raise invalid_attribute_name(name)
    attributes = attributes_of(queue)
    found = attributes.reported()
    found |= {
        "CreatedTimestamp": str((queue.created_ticks - EPOCH_TICKS) // TICKS_PER_SECOND),
        "LastModifiedTimestamp": str(modified_seconds(queue)),
        "QueueArn": asked.arn_of(queue),
    }
    if "All" in names or not {*_COUNTERS}.isdisjoint(names):
        found |= dict(zip(_COUNTERS, map(str, await _counted(asked, queue)), strict=True))
    if "All" in names:
        return {"Attributes": found}
    return {"Attributes": {name: found[name] for name in names if name in found}}


_SOMETIMES = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "Policy", "RedriveAllowPolicy", "RedrivePolicy")
_KNOWN = frozenset(["All", *_COUNTERS, *_READ_ONLY, *_SOMETIMES, *QueueAttributes({"FifoQueue": "true"}).reported()])
"""Names of attributes that may be asked for."""


async def visible_messages(asked: SqsRequest, queue: Queue) -> int:
    """About how many messages may be received now."""
    return (await _counted(asked, queue))[0]


async def _counted(asked: SqsRequest, queue: Queue) -> tuple[int, int, int]:
    """Messages that may be received, that are delayed, and that are out."""
    service = asked.service
    counts = await service.leases.count(queue, GROUP)
    found = await count_backlog(service.leases, service.queues, service.log, queue, GROUP, counts)
    each = found.values()
    return sum(one.visible for one in each), sum(one.delayed for one in each), sum(one.hidden for one in each)


async def set_queue_attributes(asked: SqsRequest) -> Result:
    """Change attributes. What is not named stays."""
    queue = await asked.queue(Permission.CONFIGURE)
    given = asked.values["Attributes"]
    for name in (*_COUNTERS, *_READ_ONLY):
        if name in given:
            raise invalid_attribute_name(name)

    began = asked.service.log.newest_ticks(queue)

    def change(before: QueueAttributes) -> QueueAttributes:
        after, delay = before.changed(given), before.numbers["DelaySeconds"]
        if not after.is_fifo or after.numbers["DelaySeconds"] >= delay:
            return after
        until = began + (delay + _CHANGE_SECONDS) * TICKS_PER_SECOND
        return replace(after, waits_until=max(before.waits_until, until))

    after = change(attributes_of(queue))
    if "Policy" in given:
        _check_resources(asked, queue.name, after)
    if "RedrivePolicy" in given:  # another change is good whatever has become of the dead-letter queue
        await _check_dead_letters(asked, queue.name, after)
    await _change_both(asked, queue, change, _all_settings)
    return {}


def _all_settings(attributes: QueueAttributes, _: GroupSettings) -> Mapping[str, Any]:
    return attributes.queue_settings


async def make_fair(asked: SqsRequest, queue: Queue) -> None:
    """Let receives from a standard queue be fair between message groups from now on."""
    await _change_both(asked, queue, lambda before: replace(before, is_fair=True), _fairness)


def _fairness(_: QueueAttributes, settings: GroupSettings) -> Mapping[str, Any]:
    """Nothing of a group that REST lets order keys: no key has more than a few leases there."""
    return {} if settings.order == ORDER_BY_KEY else {"fair": True}


async def _change_both(asked: SqsRequest, queue: Queue, change: _Change, follows: _Follows) -> None:
    """Change attributes, and the settings of the lease group that follow from them.

    The settings come first: after a death in between, the attributes say that the change is still to be made.
    """
    await _change_group(asked, queue, change, follows)
    await change_attributes(asked, queue, change, follows)
    await _change_group(asked, queue, lambda found: found, follows)


def _no_settings(_: QueueAttributes, __: GroupSettings) -> Mapping[str, Any]:
    return {}


async def change_attributes(
    asked: SqsRequest, queue: Queue, change: _Change, follows: _Follows = _no_settings
) -> Queue:
    """Change what is kept with a queue, whatever others change meanwhile.

    What does not follow from the change stays as REST has set it.
    """
    now, default = unix_now(asked), asked.service.leases.default_settings

    def changed(found: Queue) -> Queue:
        before = attributes_of(found)
        after = change(before)
        if (after.given, after.tags) != (before.given, before.tags):
            after = replace(after, modified=now)
        leases = follows(after, found.leases.settings(default))
        text = found.attributes if after == before else after.text
        return QueueSettings(leases=leases, attributes=text).changed(found)

    try:
        return await asked.service.queues.change(queue, changed)
    except QueueNotFound:
        raise no_such_queue() from None


async def _change_group(asked: SqsRequest, queue: Queue, change: _Change, follows: _Follows) -> None:
    """Let the lease group of a queue go by its attributes, if there is one already.

    The queue is looked up behind its group: if the group is still the same when it is changed, nobody has changed both
    meanwhile, and of several callers the last one has seen the last attributes.

    :param change: of the attributes, which they do not say yet. It is one of those found, so it takes back no other.
    """
    leases, queues = asked.service.leases, asked.service.queues
    while (group := await leases.find(queue, GROUP)) is not None:
        found = await queues.look_anew(queue.application, queue.name)
        if found is None or found.uuid != queue.uuid:
            return
        named = follows(change(attributes_of(found)), group.settings)
        settings = group.settings.changed({name: named[name] for name in named.keys() & {*GroupSettings._fields}})
        if settings == group.settings or await leases.keep(queue, GROUP, group._replace(settings=settings), group):
            return


def _check_resources(asked: SqsRequest, name: str, attributes: QueueAttributes) -> None:
    """:raises SqsError: a statement of the policy is about another queue than this one of the caller."""
    attributes.policy.check_resources(lambda arn: _names(arn, asked, name))


async def _check_dead_letters(asked: SqsRequest, name: str, attributes: QueueAttributes) -> None:
    """:raises SqsError: the dead-letter queue is none that this queue may have."""
    text = attributes.given.get("RedrivePolicy")
    if text is None:
        return
    policy = redrive_policy(text)

    def wrong(reason: str) -> SqsError:
        return invalid_parameter(f"Value {shown(text)} for parameter RedrivePolicy is invalid. Reason: {reason}")

    if policy.account != account_of(asked.application):
        raise wrong("Dead-letter target owner should be same as the source.")
    if policy.queue == name:
        raise wrong("A queue cannot be its own dead-letter queue.")
    dead = await asked.service.queues.find(asked.application, policy.queue)
    if dead is None:
        raise wrong("Dead letter target does not exist.")
    theirs = attributes_of(dead)
    if theirs.is_fifo != attributes.is_fifo:
        raise wrong("Dead-letter queue must be same type of queue as the source.")
    allow = theirs.given.get("RedriveAllowPolicy")
    if allow is not None:
        word, sources = redrive_allow_policy(allow)
        if word == "denyAll" or (word == "byQueue" and not any(_names(arn, asked, name) for arn in sources)):
            raise wrong("The dead-letter queue does not allow this queue as a source.")


def _names(arn: str, asked: SqsRequest, name: str) -> bool:
    """Whether it is the ARN of this queue of the caller, in any region."""
    return parse_arn(arn) == (account_of(asked.application), name)


async def tag_queue(asked: SqsRequest) -> Result:
    """Set tags; those with other keys stay."""
    queue = await asked.queue(Permission.CONFIGURE)
    given = asked.values["Tags"]
    await change_attributes(asked, queue, lambda before: replace(before, tags=_tagged(before.tags, given)))
    return {}


async def untag_queue(asked: SqsRequest) -> Result:
    """Remove tags by their keys, whether or not they are there."""
    queue = await asked.queue(Permission.CONFIGURE)
    gone = {*asked.values["TagKeys"]}
    await change_attributes(
        asked,
        queue,
        lambda before: replace(before, tags={key: text for key, text in before.tags.items() if key not in gone}),
    )
    return {}


async def list_queue_tags(asked: SqsRequest) -> Result:
    """All tags of a queue."""
    queue = await asked.queue(Permission.CONFIGURE)
    return {"Tags": attributes_of(queue).tags}


def _tagged(before: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    for key, value in given.items():
        if not 1 <= len(key) <= _MAX_KEY or len(value) > _MAX_VALUE:
            raise invalid_parameter(
                f"Tag {shown(key)} is invalid: a key has 1 to {_MAX_KEY} characters, a value at most {_MAX_VALUE}."
            )
    found = {**before, **given}
    if len(found) > MAX_TAGS:
        raise invalid_parameter(f"Too many tags added for queue: at most {MAX_TAGS}.")
    return found


def unix_now(asked: SqsRequest) -> int:
    """Seconds since 1970."""
    return (asked.now_ticks - EPOCH_TICKS) // TICKS_PER_SECOND
