"""Where ``queuey bench run`` writes the results of several drivers and variants."""

from __future__ import annotations

from pathlib import Path

from queuey.cli.bench import _beside


def test_a_long_label_makes_a_name_that_folders_take(tmp_path: Path) -> None:
    """Else the results of an hour could not be written."""
    first, second = ("memory receiving=" + "batch:10," * 40 + end for end in ("a", "b"))
    paths = [_beside(tmp_path / "results.json", label) for label in (first, second)]

    for path in paths:
        path.write_text("{}")

    assert len({*paths}) == 2
    assert paths[0].suffix == ".json"
