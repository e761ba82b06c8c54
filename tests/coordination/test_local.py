"""Members of one machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import repeat
from pathlib import Path

import pytest

from qdo.groups.local import LocalCoordinator, default_folder
from queuey import file_system
from queuey.clock import ManualClock
from queuey.errors import ConfigurationError
from tests.support.group_contract import CoordinatorContract
from tests.support.local_members import LocalGroup
from tests.support.members import parts
from tests.support.servers import eventually


@pytest.fixture
def group(tmp_path: Path) -> Iterator[LocalGroup]:
    with LocalGroup(tmp_path) as made:
        yield made


@pytest.fixture
def other_group(tmp_path: Path) -> Iterator[LocalGroup]:
    with LocalGroup(tmp_path) as made:
        yield made


class TestLocal(CoordinatorContract):
    """By hand."""

    def test_a_member_of_before_the_machine_started_anew_is_dead(self, group: LocalGroup, tmp_path: Path) -> None:
        """Its elapsed time says nothing: counted from another boot, it may be higher than now."""
        before = group.member()
        before.claim(*parts(1))

        class Rebooted(ManualClock):
            def boot(self) -> str:
                return "another"

        with_new_boot = LocalCoordinator(group.name, tmp_path, clock=Rebooted(), by_hand=True)
        name = with_new_boot.join({})

        assert [member.name for member in with_new_boot.members()] == [name]
        assert len(with_new_boot.claim(parts(1))) == 1
        with_new_boot.close()


def test_a_folder_that_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigurationError, match=r"cannot be kept in .*file"):
        LocalCoordinator("g", tmp_path / "file")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"QDO_STATE": "/a/b", "XDG_STATE_HOME": "/x"}, "/a/b"),
        ({"QDO_STATE": "", "XDG_STATE_HOME": "/x"}, "/x/qdo"),
        ({"QDO_STATE": "", "XDG_STATE_HOME": "", "HOME": "/home/somebody"}, "/home/somebody/.local/state/qdo"),
    ],
)
def test_where_the_groups_are_kept(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert str(default_folder()) == expected


def test_with_a_thread_of_its_own_a_member_lives_and_hears(tmp_path: Path) -> None:
    """Real time: it says again and again that it is alive."""
    first, second = (LocalCoordinator("g", tmp_path, session_seconds=9.0) for _ in range(2))
    told: list[int] = []
    first.changed = lambda: told.append(1)
    first.join({"name": "first"})
    second.join({"name": "second"})

    def heard_of() -> list[float]:
        with first._file.reading():
            return [heard for (heard,) in first._file.ask("SELECT heard FROM members ORDER BY number")]

    for _ in range(2):
        before = heard_of()
        eventually(lambda before=before: all(now > then for now, then in zip(heard_of(), before, strict=True)))  # type: ignore[misc]

    assert [member.about["name"] for member in second.members()] == ["first", "second"]
    assert first.trusted()
    heard = len(told)
    second.close()
    eventually(lambda: len(told) > heard)
    assert [member.about["name"] for member in first.members()] == ["first"]
    first.close()


def test_members_that_come_at_one_moment_to_a_folder_that_is_new_all_join(tmp_path: Path) -> None:
    """Three workers started by one command: SQLite turned some of hundreds away while another made the file."""
    together = 8

    def come(folder: Path, all_there: threading.Barrier) -> str:
        all_there.wait(60)
        with closing(LocalCoordinator("g", folder)) as coordinator:
            return coordinator.join({})

    with ThreadPoolExecutor(together) as threads:
        for turn in range(40):
            folder, all_there = tmp_path / str(turn), threading.Barrier(together)
            names = {*threads.map(come, repeat(folder, together), repeat(all_there))}
            assert len(names) == together


@pytest.mark.parametrize(("kind", "name"), [("nfs4", "far"), ("cifs", "été"), ("9p", "far away")])
def test_a_folder_on_the_network_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    """Two machines would each take the file's locks, and own the same partition."""
    mounts = tmp_path / "mountinfo"
    there = f"{tmp_path}/{name}".replace(" ", r"\040")
    mounts.write_text(f"1 0 8:1 / / rw - ext4 /dev/x rw\n2 1 0:9 / {there} rw - {kind} host:/far rw\n")
    monkeypatch.setattr(file_system, "MOUNTS", mounts)

    with pytest.raises(ConfigurationError, match=rf"on a network file system \({kind}\).*QDO_STATE"):
        LocalCoordinator("g", tmp_path / name / "groups")

    LocalCoordinator("g", tmp_path / "near").close()
