"""What every suite shares: no setting of the machine it runs on reaches a test; figures are printed at the end."""

from __future__ import annotations

import gc
import os
import random
import signal
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import settings

from qdo.measure import report_line
from tests.support.by_file import BREAKS_NODES, ByFile
from tests.support.drawn import Drawn
from tests.support.figures import Figures
from tests.support.services.java import BRIEF

pytest_plugins = ["tests.support.alone", "tests.support.unskipped", "tests.support.services.fixtures"]

WITH_SPARK = ("tests/pipeline/", "tests/faults/test_pipeline.py", "tests/examples/test_clocks.py")
MOSTLY_WAIT = (
    "tests/functional/slots/",
    "tests/functional/test_qdo_work.py",
    "tests/functional/test_qdo_offsets.py",
)
"""Fit to run beside three nodes of Cassandra: they leave them the processors."""
OVER_BOTH_STORES = ("tests/functional/", "tests/pipeline/")
EVERY = 3
"""Of these tests, where they run over both stores, a run with a share has each third one over Cassandra, others each time."""
EXAMPLES, EXAMPLES_OF_A_SHARE = 100, 50
"""Of hypothesis, where a test names no number."""
SHORT = ("queuey/", "qdo/", "tests/unit/", "tests/contract/", "tests/coordination/", "tests/services/")
"""Of these there are many that take little: they fill up what is left at the end of a run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("queuey")
    group.addoption("--fault-rounds", type=int, default=1, metavar="N", help="fault tests: N times the usual rounds")
    group.addoption(
        "--share",
        type=int,
        metavar="N",
        help="of the tests that take long: only N, others each time; and a third as many of those that kill over Cassandra; "
        "of what runs over both stores a third over Cassandra",
    )
    group.addoption("--fault-seed", type=int, metavar="SEED", help="repeat the choices of an earlier run")
    group.addoption("--pictures", action="store_true", help="examples: write the pictures of the documentation anew")


def pytest_configure(config: pytest.Config) -> None:
    # A script's job in the background begins with Ctrl-C ignored, and so would every command that a test starts.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)
    # How long an example takes is no property of the code.
    examples = EXAMPLES if config.option.share is None else EXAMPLES_OF_A_SHARE
    settings.register_profile("queuey", deadline=None, max_examples=examples)
    settings.load_profile("queuey")
    if hasattr(config, "workerinput"):
        config.option.fault_seed = config.workerinput["fault_seed"]
    elif config.option.fault_seed is None:
        config.option.fault_seed = random.SystemRandom().randrange(1 << 32)


def pytest_configure_node(node: Any) -> None:
    """A process of pytest-xdist makes the choices that the head of the run tells."""
    node.workerinput["fault_seed"] = node.config.option.fault_seed


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: the garbage collector need not look through ten thousand tests again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest comes first; Spark when the three nodes of Cassandra are done, for it leaves them no processor; what is short last."""
    share: int | None = config.option.share
    if share is not None:
        drawn = [item for item in items if item.get_closest_marker("drawn")]
        for breaks, number in ((True, max(1, share // 3)), (False, share)):
            some = [item for item in drawn if item.nodeid.startswith(BREAKS_NODES) is breaks]
            _leave_out(config, items, some, number)
        again = [item for item in items if _is_over_cassandra_again(item)]
        _leave_out(config, items, again, -(-len(again) // EVERY))
    items.sort(key=_turn)


def _is_over_cassandra_again(item: pytest.Item) -> bool:
    """Whether the same test runs over the embedded store."""
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return item.nodeid.startswith(OVER_BOTH_STORES) and given.get("running") == "cassandra"


def _leave_out(config: pytest.Config, items: list[pytest.Item], drawn: list[pytest.Item], number: int) -> None:
    """All but this number: the same ones in each process, others with another seed."""
    names = sorted(item.nodeid for item in drawn)
    kept = random.Random(config.option.fault_seed).sample(names, min(number, len(names)))
    left_out = {item for item in drawn if item.nodeid not in kept}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def _turn(item: pytest.Item) -> int:
    for turn, places in ((1, BREAKS_NODES), (2, MOSTLY_WAIT), (3, WITH_SPARK), (5, SHORT)):
        if item.nodeid.startswith(places):
            return turn
    return 4


def pytest_report_header(config: pytest.Config) -> str:
    given = config.option
    share = "" if given.share is None else f" --share {given.share}"
    return f"choices: --fault-rounds {given.fault_rounds}{share} --fault-seed {given.fault_seed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The lines of the guarantees, one below the other."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    lines = [
        str(value)
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == "figures"
    ]
    if lines:
        terminalreporter.section("guarantees")
        for line in sorted(lines, key=lambda line: (int(line.split()[0][1:]), line)):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def no_settings_from_outside() -> Iterator[None]:
    """Clear ``QUEUEY_*`` for the run, and leave out the contexts of its user.

    So processes that tests start get exactly what the test gives them.
    """
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("QUEUEY_")}
    os.environ["QUEUEY_CONTEXTS"] = f"{os.devnull}/none"
    yield
    del os.environ["QUEUEY_CONTEXTS"]
    os.environ.update(kept)


@pytest.fixture(autouse=True)
def no_settings_left_behind() -> Iterator[None]:
    """A command that a test runs in this process may name its server to its jobs: the next test does not hear of it."""
    before = _settings()
    yield
    for name in _settings().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("QUEUEY_")}


@pytest.fixture(scope="session", autouse=True)
def brief_spark() -> Iterator[None]:
    """Of Spark's two programs, that begins and that works, for this process and what it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
            patch.setenv(name, " ".join(BRIEF))
        yield


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """Say the figures of a guarantee; do so before asserting them."""

    def say(guarantee: str, **values: object) -> None:
        record_property("figures", report_line(guarantee, **values))

    return say


@pytest.fixture
def rounds(pytestconfig: pytest.Config) -> Callable[[int], range]:
    """``rounds(3)``: the numbers of three rounds, or of as many times three as the run was asked for."""
    times: int = pytestconfig.option.fault_rounds
    return lambda usual: range(usual * times)


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Each test's own choices, the same again for the same seed."""
    seed: int = request.config.option.fault_seed
    return random.Random(seed ^ zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def drawn(pytestconfig: pytest.Config, chance: random.Random) -> Drawn:
    """``drawn(names, 8)``: all of them; in the shorter run eight, others each time."""
    is_shorter = pytestconfig.option.fault_rounds == 1
    return lambda names, most: chance.sample([*names], most) if is_shorter else [*names]
