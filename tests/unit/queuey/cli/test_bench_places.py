"""Where ``queuey bench run`` writes the results of several drivers and variants."""

from __future__ import annotations

from pathlib import Path

from queuey.cli.bench import _beside, _names_of


def test_a_long_label_makes_a_name_that_folders_take(tmp_path: Path) -> None:
    """Else the results of an hour could not be written."""
    labels = ["memory receiving=" + "batch:10," * 40 + end for end in ("a", "b")]
    paths = [_beside(tmp_path / "results.json", name) for name in _names_of(labels)]

    for path in paths:
        path.write_text("{}")

    assert len({*paths}) == 2
    assert paths[0].suffix == ".json"


def test_no_two_labels_have_one_name() -> None:
    """Also where a label ends as others are counted."""
    names = _names_of(["memory url=a/b", "memory url=a:b", "memory url=a-b-2"])

    assert len({*names}) == 3
