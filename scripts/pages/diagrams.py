"""The diagrams of the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .drawing import Drawing

__all__ = ["DIAGRAMS", "TITLES"]

TITLES = {
    "log": "A partition as a row of messages, with the watermark and the places of three readers; below it the same messages "
    "as a lease group sees them: acknowledged, leased, waiting for another try, or not handed out yet",
    "groups": "On the left four partitions with two workers, each the owner of two of them; on the right a lease group that "
    "hands out the messages of the same partitions to four receivers, one by one",
    "machines": "On the left one machine: programs, one server process and its file; on the right many: programs, a proxy, "
    "three servers and three nodes of Cassandra, and beside them a ZooKeeper for workers that own partitions",
}

STEP, CELL = 58.0, 50.0
LEFT = 40.0


def log() -> str:
    """A partition with its readers, and the same messages as a lease group sees them."""
    drawing = Drawing(900, 545, TITLES["log"])
    drawing.text(LEFT, 36, "A partition is a log", style="head")
    drawing.text(LEFT, 58, "Messages stand in the order of their ids. Reading removes nothing.")
    _messages(drawing, 122)
    _readers(drawing, 122)
    drawing.line(20, 296, 880, 296, "paper")
    drawing.text(LEFT, 332, "The same messages as a lease group sees them", style="head")
    drawing.text(LEFT, 354, "Each goes to one receiver at a time. The group notes only what is settled.")
    _leases(drawing, 410)
    return drawing.svg()


def _x(place: int) -> float:
    return LEFT + STEP * place


def _span(drawing: Drawing, first: int, last: int, y: float, text: str) -> None:
    """A bracket above some messages, with what they have in common."""
    begin, end = _x(first) + 2, _x(last) + CELL - 2
    drawing.line(begin, y, end, y)
    drawing.line(begin, y, begin, y + 6)
    drawing.line(end, y, end, y + 6)
    drawing.text((begin + end) / 2, y - 7, text, at="middle", style="small")


def _messages(drawing: Drawing, y: float) -> None:
    for place in range(14):
        gone, coming = place < 2, place >= 10
        if place != 11:
            kind = "gone" if gone else "plain" if not coming else "held" if place == 10 else "sure"
            drawing.box(_x(place), y, CELL, 40, kind, dashed=gone or coming)
            drawing.text(_x(place) + CELL / 2, y + 25, str(place + 1) if place < 11 else "later", kind, at="middle")
    _span(drawing, 0, 1, y - 12, "TTL is over")
    _span(drawing, 2, 9, y - 12, "on disk, and readable")
    _span(drawing, 12, 13, y - 12, "delivery time")
    drawing.text(_x(10) + CELL / 2, y - 19, "is stored now", at="middle", style="small")
    line = _x(10) - (STEP - CELL) / 2
    drawing.line(line, y - 8, line, y + 68, "sure")
    drawing.text(line + 8, y + 66, "watermark: complete up to here", "sure")


def _readers(drawing: Drawing, y: float) -> None:
    for place, text, low in (
        (5, "cursor of a program", 96),
        (8, "offset of the group billing", 128),
        (10, "cursor of a live page: it waits here", 160),
    ):
        x = _x(place) - (STEP - CELL) / 2 - (5 if place == 10 else 0)
        drawing.arrow(x, y + low - 14, x, y + 44)
        drawing.text(x + (4 if place < 10 else 0), y + low, text, at="end" if place < 8 else "middle")


def _leases(drawing: Drawing, y: float) -> None:
    states = {
        3: ("done", "done"),
        4: ("done", "done"),
        5: ("held", "leased"),
        6: ("done", "done"),
        7: ("gone", "again"),
        8: ("held", "leased"),
        9: ("plain", "9"),
        10: ("plain", "10"),
    }
    for number, (kind, text) in states.items():
        x = _x(number - 1)
        drawing.box(x, y, CELL, 40, kind, dashed=kind == "gone")
        drawing.text(x + CELL / 2, y + 25, text, kind, at="middle", style="small")
    _span(drawing, 8, 9, y - 12, "not handed out yet")
    drawing.labelled(_x(4) - 20, y + 84, 90, 34, "receiver A")
    drawing.labelled(_x(7) - 20, y + 84, 90, 34, "receiver B")
    drawing.arrow(_x(4) + CELL / 2, y + 42, _x(4) + CELL / 2, y + 82, "held")
    drawing.arrow(_x(7) + CELL / 2, y + 42, _x(7) + CELL / 2, y + 82, "held")
    line = _x(8) - (STEP - CELL) / 2
    drawing.line(line, y - 8, line, y + 62, "sure")
    drawing.text(line + 8, y + 60, "frontier: the group has looked at all before it", "sure")
    drawing.text(_x(2), y - 19, "acknowledged", "done", style="small")
    drawing.text(_x(6) + CELL / 2, y - 19, "a try failed", at="middle", style="small")


def groups() -> str:
    """Owned partitions beside a lease group."""
    drawing = Drawing(900, 418, TITLES["groups"])
    drawing.line(450, 20, 450, 398, "paper")
    _owned(drawing, 30)
    _leased(drawing, 480)
    return drawing.svg()


def _partitions(drawing: Drawing, x: float, kinds: str) -> None:
    """Four rows of messages.

    :param kinds: a letter for each row: the colour of its messages.
    """
    names = {"p": "plain", "d": "done", "s": "sure"}
    for row, kind in enumerate(kinds):
        y = 110 + 58 * row
        drawing.text(x, y - 6, f"partition {row + 1}", style="small")
        for place in range(5):
            drawing.box(x + 24 * place, y, 20, 24, names[kind])


def _owned(drawing: Drawing, x: float) -> None:
    drawing.text(x, 38, "Owned partitions", style="head")
    drawing.text(x, 60, "Each partition has one owner. Its messages come in order.")
    _partitions(drawing, x, "ddss")
    for row, kind in enumerate(("done", "done", "sure", "sure")):
        y = 122 + 58 * row
        drawing.arrow(x + 124, y, x + 248, (151 if row < 2 else 267) + (-8 if row % 2 == 0 else 8), kind)
    drawing.labelled(x + 250, 121, 140, 60, "worker A\nowns 1 and 2", "done")
    drawing.labelled(x + 250, 237, 140, 60, "worker B\nowns 3 and 4", "sure")
    drawing.text(x, 352, "Progress: an offset for each partition.")
    drawing.text(x, 373, "A worker that dies: the others take its partitions over.")
    drawing.text(x, 394, "More workers than partitions: some of them rest.")


def _leased(drawing: Drawing, x: float) -> None:
    drawing.text(x, 38, "A lease group", style="head")
    drawing.text(x, 60, "Each message goes to one receiver at a time.")
    _partitions(drawing, x, "pppp")
    drawing.labelled(x + 160, 104, 84, 212, "lease\ngroup", "held")
    for row in range(4):
        drawing.arrow(x + 124, 122 + 58 * row, x + 158, 122 + 58 * row)
    for number, name in enumerate("ABCD"):
        y = 104 + 58 * number
        drawing.arrow(x + 246, y + 19, x + 284, y + 19, "held")
        drawing.labelled(x + 286, y, 104, 38, f"receiver {name}")
    drawing.text(x, 352, "Progress: each message is settled by itself.")
    drawing.text(x, 373, "A receiver that dies: its messages are handed out again.")
    drawing.text(x, 394, "Any number of receivers. No partition belongs to any.")


def machines() -> str:
    """The embedded store beside Cassandra."""
    drawing = Drawing(900, 445, TITLES["machines"])
    drawing.line(330, 20, 330, 425, "paper")
    _one(drawing, 30)
    _many(drawing, 360)
    return drawing.svg()


def _one(drawing: Drawing, x: float) -> None:
    drawing.text(x, 38, "One machine", style="head")
    drawing.text(x, 60, "queuey serve, and nothing else")
    drawing.labelled(x, 90, 270, 52, "programs, browsers, workers,\nclients of SQS, Spark")
    drawing.arrow(x + 135, 144, x + 135, 198)
    drawing.text(x + 147, 176, "HTTP", style="small")
    drawing.labelled(x, 200, 270, 52, "one server process", "sure")
    drawing.arrow(x + 135, 254, x + 135, 308, "sure")
    drawing.labelled(x, 310, 270, 52, "queuey-data: the embedded store\n(SQLite)", "done")
    drawing.text(x, 402, "An acknowledged message is on its disk.")
    drawing.text(x, 423, "No read delay.")


def _many(drawing: Drawing, x: float) -> None:
    drawing.text(x, 38, "Many machines", style="head")
    drawing.text(x, 60, "Any number of servers on Cassandra. Each serves every queue.")
    drawing.labelled(x, 90, 330, 52, "programs, browsers, workers,\nclients of SQS, Spark")
    drawing.arrow(x + 165, 144, x + 165, 161)
    drawing.labelled(x, 163, 330, 30, "a proxy, or any server")
    for number in range(3):
        middle = x + 50 + 115 * number
        drawing.arrow(middle, 195, middle, 216)
        drawing.labelled(middle - 50, 218, 100, 40, f"server {number + 1}", "sure")
        for other in range(3):
            drawing.line(middle, 260, x + 50 + 115 * other, 312, "sure")
        drawing.labelled(middle - 50, 312, 100, 52, f"Cassandra\nnode {number + 1}", "done")
    drawing.text(x, 402, "An acknowledged message is on as many replicas as its queue asks for.")
    drawing.text(x, 423, "Readers see it after the read delay. A node or a server may die.")
    drawing.box(x + 380, 163, 130, 95, "gone", dashed=True)
    for line, text in enumerate(("ZooKeeper, only for", "workers that own", "partitions")):
        drawing.text(x + 445, 195 + 18 * line, text, "gone", at="middle", style="small")
    drawing.arrow(x + 332, 116, x + 445, 160, "gone", dashed=True)


DIAGRAMS: Mapping[str, Callable[[], str]] = {"log": log, "groups": groups, "machines": machines}
"""By the name of the file in ``docs/images``."""
