"""A ZooKeeper that is not there."""

from __future__ import annotations

import subprocess
import sys


def test_a_zookeeper_that_is_not_there_is_one_sentence() -> None:
    program = (
        "from qdo.groups.zookeeper import ZooKeeperCoordinator\n"
        "from queuey.errors import CoordinatorUnavailable\n"
        "try:\n"
        "    ZooKeeperCoordinator('127.0.0.1:1', 'shop', 'packers', connect_seconds=1)\n"
        "except CoordinatorUnavailable as error:\n"
        "    print(error)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)

    assert done.stderr == ""
    assert done.stdout == (
        "no ZooKeeper answers at 127.0.0.1:1 within 1 s: look whether it runs, and at --zookeeper or QDO_ZOOKEEPER\n"
    )
