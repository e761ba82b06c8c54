"""Requests that wait for room get it in turn, and everything that is taken is given back once (G17)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuey.http.admission import Admission, PatientTicket, Ticket
from queuey.security.principals import STRANGERS

A, B, C = ("app:a",), ("app:b",), ("app:c",)
PAYERS = [A, B, (STRANGERS,), ("bid:joe@example.org", STRANGERS), ("bid:ann@example.org", STRANGERS)]


class Line:
    """Tickets that wait, and the order in which their turn came."""

    def __init__(self, most_bytes: int = 100) -> None:
        self.gate = Admission(10, most_bytes)
        self.served: list[str] = []

    def wait(self, name: str, size: int, by: tuple[str, ...]) -> PatientTicket:
        ticket = PatientTicket(self.gate, by, lambda: self.served.append(name))
        ticket.wait_for(size)
        return ticket

    def holder(self, size: int, by: tuple[str, ...]) -> Ticket:
        ticket = Ticket(self.gate, by)
        assert ticket.try_hold(size)
        return ticket


def test_room_comes_in_the_order_in_which_it_is_waited_for() -> None:
    line = Line()
    holder = line.holder(50, A)
    for number in range(5):
        line.wait(str(number), 20, A)
    assert not line.served

    holder.give_back(25)
    assert line.served == ["0"]
    holder.close()
    assert line.served == ["0", "1"]


def test_small_ones_do_not_pass_a_large_one() -> None:
    line = Line()
    holder = line.holder(50, A)
    line.wait("large", 25, A)
    line.wait("small", 5, A)

    holder.give_back(20)
    assert not line.served
    holder.give_back(5)
    assert line.served == ["large"]


def test_payers_take_turns() -> None:
    line = Line()
    holders = [line.holder(size, by) for size, by in ((40, A), (40, B), (20, C))]
    for number in range(2):
        for by in (A, B, C):
            line.wait(f"{by[0]}{number}", 10, by)
    for holder in holders:
        for _ in range(2):
            holder.give_back(10)

    assert line.served == ["app:a0", "app:b0", "app:c0", "app:a1", "app:b1", "app:c1"]


def test_a_payer_without_room_keeps_nobody_else_waiting() -> None:
    line = Line()
    line.holder(50, A)
    line.wait("a", 10, A)
    line.wait("b", 10, B)

    assert line.served == ["b"]


def test_those_behind_a_large_one_go_on_when_it_leaves() -> None:
    line = Line()
    line.holder(40, A)
    large = line.wait("large", 40, A)
    line.wait("small", 5, A)
    large.close()

    assert line.served == ["small"]


def test_a_call_is_not_refused_because_others_wait() -> None:
    line = Line()
    holder = line.holder(50, A)
    line.wait("large", 50, A)
    holder.give_back(10)

    assert Ticket(line.gate, A).try_hold(10)


def test_bytes_are_given_back_by_the_payer_that_took_them() -> None:
    """A caller may become known while its ticket holds bytes."""
    gate = Admission(10, 100)
    ticket, other = Ticket(gate), Ticket(gate, A)
    assert ticket.try_hold(10)
    assert other.try_hold(10)

    ticket.principals = frozenset({"app:a"})
    ticket.close()

    assert gate.by_payer == {"app:a": 10}
    assert ticket.payers == A


def test_no_more_is_waited_for_than_there_will_be() -> None:
    """Else two small calls of the same payer that overlap all the time would keep a large one waiting, and all behind it."""
    line = Line()
    holders = [line.holder(20, A), line.holder(5, A)]
    large = line.wait("larger than the gate", 1000, A)
    line.wait("other", 10, B)
    line.wait("behind", 5, A)
    assert line.served == ["larger than the gate", "other"]

    assert large.widen(1000)
    large.made(1000)
    assert line.gate.by_payer["app:a"] == 1025
    large.taken()
    assert line.served == ["larger than the gate", "other", "behind"]
    for holder in holders:
        holder.close()


def test_many_users_who_wait_are_not_all_looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    take = PatientTicket.take

    def counted(ticket: PatientTicket) -> str | None:
        looks.append(ticket)
        return take(ticket)

    monkeypatch.setattr(PatientTicket, "take", counted)
    line, users = Line(1 << 20), 1000
    tickets = [line.wait(str(number), 1 << 20, (f"bid:{number}@example.org", STRANGERS)) for number in range(users)]
    while len(line.served) < users:
        for ticket in tickets:
            if ticket.room:
                ticket.close()

    assert line.served == [str(number) for number in range(users)]
    assert len(looks) < 4 * users


def test_what_is_made_stays_counted_until_it_is_taken() -> None:
    gate = Admission(10, 1000)
    ticket = PatientTicket(gate, A, lambda: None)
    assert ticket.wait_for(30)
    assert ticket.widen(40)
    ticket.made(7)
    assert gate.bytes == 7
    assert ticket.wait_for(30)
    assert gate.bytes == 37

    ticket.taken()
    assert gate.bytes == 30
    ticket.close()
    ticket.close()
    assert (gate.bytes, gate.by_payer) == (0, {})


Steps = list[tuple[str, int, int]]
WHAT = st.sampled_from(["wait", "wait", "widen", "made", "taken", "close", "hold", "give back"])


@given(st.lists(st.tuples(WHAT, st.integers(0, 11), st.integers(1, 120)), max_size=100))
@settings(max_examples=300, deadline=None)
def test_nobody_waits_while_there_is_room_and_nothing_is_left_at_the_end(steps: Steps) -> None:
    gate = Admission(10, 160)
    waiting = [PatientTicket(gate, PAYERS[number % len(PAYERS)], lambda: None) for number in range(12)]
    calls = [Ticket(gate, PAYERS[number % len(PAYERS)]) for number in range(12)]
    for what, number, size in steps:
        patient, call = waiting[number], calls[number]
        if what == "wait":
            patient.wait_for(size)
        elif what == "widen" and patient.room:
            patient.widen(size)
        elif what == "made":
            patient.made(min(size, patient.room))
        elif what == "taken":
            patient.taken()
        elif what == "close":
            patient.close()
        elif what == "hold":
            call.try_hold(size)
        elif what == "give back":
            call.give_back(size)
        assert not gate.serve()  # no request waits that could go on
        assert not gate.lines or gate.bytes

    for ticket in (*waiting, *calls):
        ticket.close()
    assert (gate.bytes, gate.by_payer, gate.lines) == (0, {}, {})
