"""Dead letters and move tasks (leases.md, section 11), and permissions (section 4)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from queuey.ids import TICKS_PER_SECOND
from queuey.sqs.policies import OWNERS_ACTIONS
from tests.support.client import new_name
from tests.support.servers import eventually
from tests.support.sqs_clients import SqsServer, TimedSqs, bodies, code_of, refused

Make = Callable[..., str]


def arn_of(client: Any, url: str) -> str:
    found: str = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return found


def policy(client: Any, dead: str, count: int = 1) -> dict[str, str]:
    return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn_of(client, dead), "maxReceiveCount": count})}


def with_dead(client: Any, make: Make, **more: Any) -> tuple[str, str]:
    """A queue that gives a message once, and its dead-letter queue."""
    dead = make(**{name: value for name, value in more.items() if name == "fifo"})
    return make(**policy(client, dead), VisibilityTimeout="0", **more), dead


def give_up(client: Any, url: str, dead: str) -> dict[str, Any]:
    """Receive until the dead-letter queue has a message; returns it."""

    def moved() -> Any:
        client.receive_message(QueueUrl=url)
        found = client.receive_message(
            QueueUrl=dead, AttributeNames=["All"], MessageAttributeNames=["All"], VisibilityTimeout=0
        )
        return found.get("Messages")

    (message,) = eventually(moved)
    found: dict[str, Any] = message
    return found


def test_a_message_that_is_given_up_moves_and_stays_what_it_was(client: Any, make: Make) -> None:
    url, dead = with_dead(client, make)
    attributes = {"a": {"DataType": "Number.int", "StringValue": "4"}}
    sent = client.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes=attributes)
    (first,) = client.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]

    message = give_up(client, url, dead)

    assert (message["MessageId"], message["Body"]) == (sent["MessageId"], "poison")
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    found = message["Attributes"]
    assert found["DeadLetterQueueSourceArn"] == arn_of(client, url)
    assert found["ApproximateReceiveCount"] == "2"
    assert found["SentTimestamp"] == first["Attributes"]["SentTimestamp"]
    assert bodies(client.receive_message(QueueUrl=url)) == []
    client.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])  # harmless after the move


def test_a_fifo_message_keeps_its_group_and_its_id(client: Any, make: Make) -> None:
    url, dead = with_dead(client, make, fifo=True)
    client.send_message(QueueUrl=url, MessageBody="poison", MessageGroupId="g", MessageDeduplicationId="d")

    found = give_up(client, url, dead)["Attributes"]

    assert (found["MessageGroupId"], found["MessageDeduplicationId"]) == ("g", "d")
    assert found["DeadLetterQueueSourceArn"] == arn_of(client, url)


def test_a_queue_knows_the_sources_of_its_dead_letters(client: Any, make: Make) -> None:
    dead = make()
    sources = sorted(make(**policy(client, dead)) for _ in range(3))

    first = client.list_dead_letter_source_queues(QueueUrl=dead, MaxResults=2)
    second = client.list_dead_letter_source_queues(QueueUrl=dead, MaxResults=2, NextToken=first["NextToken"])

    assert client.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == sources
    assert (first["queueUrls"], second["queueUrls"]) == (sources[:2], sources[2:])
    assert "NextToken" not in second
    assert client.list_dead_letter_source_queues(QueueUrl=sources[0])["queueUrls"] == []


def test_a_move_task_brings_dead_letters_back(client: Any, make: Make) -> None:
    url, dead = with_dead(client, make)
    client.send_message(QueueUrl=url, MessageBody="again")
    give_up(client, url, dead)
    source = arn_of(client, dead)
    client.set_queue_attributes(QueueUrl=url, Attributes=policy(client, dead, 5))

    handle = client.start_message_move_task(SourceArn=source)["TaskHandle"]

    assert json.loads(base64.b64decode(handle)).keys() == {"taskId", "sourceArn"}
    assert eventually(lambda: bodies(client.receive_message(QueueUrl=url, VisibilityTimeout=30))) == ["again"]

    def done() -> Any:
        (task,) = client.list_message_move_tasks(SourceArn=source)["Results"]
        return task if task["Status"] == "COMPLETED" else None

    task = eventually(done)
    assert (task["SourceArn"], task["ApproximateNumberOfMessagesMoved"]) == (source, 1)
    assert task["StartedTimestamp"] > 1_700_000_000_000
    assert "TaskHandle" not in task
    assert bodies(client.receive_message(QueueUrl=dead)) == []


def test_a_move_task_may_go_elsewhere(client: Any, make: Make) -> None:
    url, dead = with_dead(client, make)
    elsewhere = make()
    client.send_message(QueueUrl=url, MessageBody="away")
    give_up(client, url, dead)

    client.start_message_move_task(
        SourceArn=arn_of(client, dead), DestinationArn=arn_of(client, elsewhere), MaxNumberOfMessagesPerSecond=500
    )

    assert eventually(lambda: bodies(client.receive_message(QueueUrl=elsewhere, VisibilityTimeout=30))) == ["away"]
    (task,) = client.list_message_move_tasks(SourceArn=arn_of(client, dead))["Results"]
    assert (task["DestinationArn"], task["MaxNumberOfMessagesPerSecond"]) == (arn_of(client, elsewhere), 500)


def test_move_tasks_that_may_not_be(client: Any, make: Make) -> None:
    plain, dead = make(), make()
    make(**policy(client, dead))
    source = arn_of(client, dead)
    start, cancel = client.start_message_move_task, client.cancel_message_move_task

    text = "Source queue must be configured as a Dead Letter Queue."
    assert refused(start, SourceArn=arn_of(client, plain)) == ("ClientError", text)
    for name in ("SourceArn", "DestinationArn"):
        given = {"SourceArn": source, name: f"{source}x"}
        text = f"The resource that you specified for the {name} parameter doesn't exist."
        assert refused(start, **given) == ("ResourceNotFoundException", text)
    assert code_of(start, SourceArn=source, MaxNumberOfMessagesPerSecond=501) == "InvalidParameterValue"
    assert refused(cancel, TaskHandle="no base64")[1] == "Value for parameter TaskHandle is invalid."
    unknown = base64.b64encode(json.dumps({"taskId": "x", "sourceArn": source}).encode()).decode()
    assert refused(cancel, TaskHandle=unknown) == ("ResourceNotFoundException", "Task does not exist.")
    assert "Results" not in client.list_message_move_tasks(SourceArn=source)


def test_a_permission_is_a_statement_of_the_policy_and_is_kept(
    sqs: SqsServer, client: Any, other_client: Any, make: Make
) -> None:
    url, account = make(), sqs.accounts["other"]
    assert code_of(other_client.send_message, QueueUrl=url, MessageBody="m") == "AccessDenied"

    client.add_permission(QueueUrl=url, Label="senders", AWSAccountIds=[account], Actions=["SendMessage"])

    other_client.send_message(QueueUrl=url, MessageBody="theirs")
    assert code_of(other_client.receive_message, QueueUrl=url) == "AccessDenied"
    (message,) = client.receive_message(QueueUrl=url, AttributeNames=["SenderId"])["Messages"]
    assert (message["Body"], message["Attributes"]["SenderId"]) == ("theirs", account)
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    (statement,) = json.loads(found)["Statement"]
    assert (statement["Sid"], statement["Effect"]) == ("senders", "Allow")
    client.remove_permission(QueueUrl=url, Label="senders")
    assert code_of(other_client.send_message, QueueUrl=url, MessageBody="m") == "AccessDenied"


def test_no_policy_opens_what_is_the_owners(sqs: SqsServer, client: Any, other_client: Any, make: Make) -> None:
    url, account = make(), sqs.accounts["other"]
    opened = {"Effect": "Allow", "Principal": {"AWS": account}}
    named = [f"SQS:{action}" for action in sorted(OWNERS_ACTIONS)]
    policy = {"Statement": [{"Sid": "a", **opened, "Action": "SQS:*"}, {"Sid": "b", **opened, "Action": named}]}
    client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy)})

    asked: dict[str, dict[str, Any]] = {
        "add_permission": {"Label": "l", "AWSAccountIds": [account], "Actions": ["SendMessage"]},
        "delete_queue": {},
        "list_queue_tags": {},
        "remove_permission": {"Label": "a"},
        "set_queue_attributes": {"Attributes": {"DelaySeconds": "1"}},
        "tag_queue": {"Tags": {"a": "b"}},
        "untag_queue": {"TagKeys": ["a"]},
    }
    codes = {name: code_of(getattr(other_client, name), QueueUrl=url, **more) for name, more in asked.items()}

    assert codes == dict.fromkeys(asked, "AccessDenied")
    kept = other_client.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy", "DelaySeconds"])["Attributes"]
    assert kept == {"Policy": json.dumps(policy), "DelaySeconds": "0"}
    other_client.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "theirs"}])
    (message,) = other_client.receive_message(QueueUrl=url)["Messages"]
    other_client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    other_client.purge_queue(QueueUrl=url)
    assert other_client.list_dead_letter_source_queues(QueueUrl=url)["queueUrls"] == []
    assert url not in other_client.list_queues().get("QueueUrls", [])


def test_a_statement_without_a_sid_has_no_label(sqs: SqsServer, client: Any, make: Make) -> None:
    """None that another statement may have, or that it could be removed by."""
    url, account = make(), sqs.accounts["other"]
    allowed = {"Effect": "Allow", "Principal": "*", "Action": "SQS:SendMessage"}
    policy = {"Statement": [{**allowed, "Sid": "statement-1"}, allowed, allowed]}

    client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy)})
    client.add_permission(QueueUrl=url, Label="statement-2", AWSAccountIds=[account], Actions=["SendMessage"])
    client.remove_permission(QueueUrl=url, Label="statement-1")

    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    assert [one.get("Sid") for one in json.loads(found)["Statement"]] == [None, None, "statement-2"]
    for label in ("statement-0", ""):
        assert code_of(client.remove_permission, QueueUrl=url, Label=label) == "InvalidParameterValue"


def test_permissions_that_may_not_be(sqs: SqsServer, client: Any, make: Make) -> None:
    url, account = make(), sqs.accounts["other"]

    def add(label: str, *actions: str) -> tuple[str, str]:
        return refused(client.add_permission, QueueUrl=url, Label=label, AWSAccountIds=[account], Actions=[*actions])

    client.add_permission(QueueUrl=url, Label="one", AWSAccountIds=[account], Actions=["*"])

    text = "Value one for parameter Label is invalid. Reason: Already exists."
    assert add("one", "SendMessage") == ("ClientError", text)
    assert add("two", *["SendMessage"] * 8)[0] == "OverLimit"
    reason = "Please refer to the appropriate WSDL for a list of valid actions."
    text = f"Value SQS:SendPigeon for parameter ActionName is invalid. Reason: {reason}"
    assert add("two", "SendPigeon") == ("ClientError", text)
    for action in OWNERS_ACTIONS:
        reason = "Only the queue owner is allowed to invoke this action."
        text = f"Value SQS:{action} for parameter ActionName is invalid. Reason: {reason}"
        assert add("two", "SendMessage", action) == ("ClientError", text)
    many = [f"{at:012}" for at in range(300)]
    given = {"QueueUrl": url, "Label": "many", "AWSAccountIds": many, "Actions": ["SendMessage"]}
    assert refused(client.add_permission, **given)[0] == "OverLimit"
    text = "Value none for parameter Label is invalid. Reason: can't find label."
    assert refused(client.remove_permission, QueueUrl=url, Label="none") == ("ClientError", text)
    client.remove_permission(QueueUrl=url, Label="one")
    assert "Attributes" not in client.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])


@pytest.mark.parametrize(
    "given",
    [
        "{",
        '{"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "SQS:*"}]}',
        '{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "SQS:*", "Condition": {}}]}',
        '{"Statement": [{"Effect": "Allow", "NotPrincipal": {"AWS": "000000000000"}, "Action": "SQS:*"}]}',
        '{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "SQS:*", "Resource": "arn:aws:sqs:*:0:q"}]}',
        '{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "SQS:*", "Resource": ["*", "arn:aws:s3:::b"]}]}',
        '{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "SQS:*", "Resource": 1}]}',
    ],
)
def test_a_policy_that_cannot_be_kept_is_refused(client: Any, make: Make, given: str) -> None:
    change = client.set_queue_attributes

    assert code_of(change, QueueUrl=make(), Attributes={"Policy": given}) == "InvalidAttributeValue"


def test_a_statement_is_about_its_queue_and_no_other(client: Any, make: Make) -> None:
    """One about another queue is refused: kept, it would open this one."""
    url, another = make(), make()
    change, allowed = client.set_queue_attributes, {"Effect": "Allow", "Principal": "*", "Action": "SQS:SendMessage"}

    def about(resource: Any) -> dict[str, str]:
        return {"Policy": json.dumps({"Statement": [{**allowed, "Resource": resource}]})}

    for good in ("*", arn_of(client, url), [arn_of(client, url)], arn_of(client, url).replace("eu-west-1", "*")):
        change(QueueUrl=url, Attributes=about(good))
    name = new_name()
    made = client.create_queue(QueueName=name, Attributes=about(arn_of(client, url).rpartition(":")[0] + f":{name}"))

    text = f"Resource must be the ARN of this queue, or *, and not {arn_of(client, another)}"
    said = ("InvalidAttributeValue", f"Invalid value for the parameter Policy. Reason: {text}.")
    assert refused(change, QueueUrl=url, Attributes=about([arn_of(client, url), arn_of(client, another)])) == said
    assert refused(client.create_queue, QueueName=new_name(), Attributes=about(arn_of(client, another))) == said
    assert made["QueueUrl"].endswith(name)


def test_other_attributes_change_whatever_became_of_the_dead_letter_queue(client: Any, make: Make) -> None:
    url, dead = with_dead(client, make)
    account = arn_of(client, url).split(":")[4]
    arns = [f"arn:aws:sqs:eu-west-1:{(int(account) + 1) % 10**12:012}:{url.rsplit('/', 1)[1]}"]
    change = client.set_queue_attributes
    allow = {"redrivePermission": "byQueue", "sourceQueueArns": arns}  # a queue of this name in another account
    change(QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps(allow)})
    again = policy(client, dead, 2)

    change(QueueUrl=url, Attributes={"DelaySeconds": "1"})
    assert refused(change, QueueUrl=url, Attributes=again)[1].endswith("does not allow this queue as a source.")
    client.delete_queue(QueueUrl=dead)
    change(QueueUrl=url, Attributes={"DelaySeconds": "2"})
    assert refused(change, QueueUrl=url, Attributes=again)[1].endswith("Dead letter target does not exist.")


@pytest.mark.parametrize(("fifo", "ends_at"), [(False, 100), (True, 180)], ids=["standard", "fifo"])
def test_a_dead_letter_lives_as_long_as_its_queue_says(
    timed: TimedSqs, timed_make: Make, *, fifo: bool, ends_at: int
) -> None:
    """From its send; on a FIFO queue from the move, which is here after 80 seconds."""
    client, dead = timed.client, timed_make(fifo=fifo, MessageRetentionPeriod="100")
    url = timed_make(fifo=fifo, **policy(client, dead, 1))
    more = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
    client.send_message(QueueUrl=url, MessageBody="m", **more)
    timed.clock.advance(80)
    client.receive_message(QueueUrl=url, VisibilityTimeout=0)
    assert bodies(client.receive_message(QueueUrl=url)) == []

    timed.clock.advance(ends_at - 80 - 1)
    before = bodies(client.receive_message(QueueUrl=dead, VisibilityTimeout=0))
    timed.clock.advance(2)
    after = bodies(client.receive_message(QueueUrl=dead, VisibilityTimeout=0))

    assert (before, after) == (["m"], [])


def test_a_dead_letter_that_is_too_old_for_its_queue_goes_at_once(timed: TimedSqs, timed_make: Make) -> None:
    client, dead = timed.client, timed_make(MessageRetentionPeriod="60")
    url = timed_make(**policy(client, dead, 1))
    client.send_message(QueueUrl=url, MessageBody="m")
    timed.clock.advance(80)
    client.receive_message(QueueUrl=url, VisibilityTimeout=0)
    client.receive_message(QueueUrl=url)

    timed.clock.advance(2)

    assert bodies(client.receive_message(QueueUrl=dead)) == []


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_two_queues_may_have_each_others_dead_letters(timed: TimedSqs, timed_make: Make, *, fifo: bool) -> None:
    """Each receive moves a message once. It stays what it was, its receives are counted on, and in the end it is too old."""
    client, first = timed.client, timed_make(fifo=fifo, ContentBasedDeduplication="true") if fifo else timed_make()
    second = timed_make(fifo=fifo, **policy(client, first))
    client.set_queue_attributes(QueueUrl=first, Attributes=policy(client, second))
    sent = client.send_message(QueueUrl=first, MessageBody="m", **({"MessageGroupId": "g"} if fifo else {}))
    begun = timed.clock.now_ticks()
    seen = []

    for turn in range(6):
        here, there = (first, second) if turn % 2 == 0 else (second, first)
        (message,) = client.receive_message(QueueUrl=here, AttributeNames=["All"], VisibilityTimeout=1)["Messages"]
        timed.clock.advance(2)
        assert bodies(client.receive_message(QueueUrl=here)) == []  # it moves
        found = message["Attributes"]
        seen.append((message["MessageId"], found["ApproximateReceiveCount"], found["SentTimestamp"]))
        assert found.get("DeadLetterQueueSourceArn", arn_of(client, there)) == arn_of(client, there)

    assert seen == [(sent["MessageId"], str(turn + 1), seen[0][2]) for turn in range(6)]
    if not fifo:  # on a FIFO queue each move begins its age anew
        timed.clock.advance(345_600 + 1 - (timed.clock.now_ticks() - begun) // TICKS_PER_SECOND)
        assert bodies(client.receive_message(QueueUrl=first)) == []


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_messages_wait_for_a_dead_letter_queue_that_is_deleted_and_made_again(
    timed: TimedSqs, timed_make: Make, *, fifo: bool
) -> None:
    """The server makes none in its place, which would be of no type and in the way of the one that its owner makes."""
    client, dead = timed.client, timed_make(fifo=fifo)
    name = dead.rsplit("/", 1)[1]
    url = timed_make(fifo=fifo, **policy(client, dead, 1))
    more = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
    client.send_message(QueueUrl=url, MessageBody="m", **more)
    client.receive_message(QueueUrl=url, VisibilityTimeout=0)
    client.delete_queue(QueueUrl=dead)

    assert bodies(client.receive_message(QueueUrl=url)) == []
    assert code_of(client.get_queue_url, QueueName=name) == "AWS.SimpleQueueService.NonExistentQueue"

    client.create_queue(QueueName=name, Attributes={"FifoQueue": "true"} if fifo else {})
    timed.clock.advance(10)
    assert bodies(client.receive_message(QueueUrl=url)) == []
    assert bodies(client.receive_message(QueueUrl=dead)) == ["m"]
