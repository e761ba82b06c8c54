r"""``qdo pipeline`` as a program for ``spark-submit``, which takes files and no commands::

    spark-submit --master spark://HOST:7077 "$(python -c 'from qdo.cli.pipeline import submit; print(submit.__file__)')" \
        report --sent SENT --received RECEIVED --out REPORT

``spark-submit`` says where Spark runs and what it may use. Everything else is as with ``qdo pipeline``.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    # The folder of a program comes first on its path, and modules in this folder have the names of packages.
    sys.path[:] = [place for place in sys.path if Path(place).resolve() != Path(__file__).resolve().parent]
    from qdo.cli import main

    main(["pipeline", *sys.argv[1:]], prog_name="qdo")
