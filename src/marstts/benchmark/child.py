"""A process that measures one case: `python -m marstts.benchmark.child`, a `Case` as JSON in, rows as JSON out.

Upstream: `runner`, which starts it.  Downstream: `measures`.
Every case runs in a separate process: caches, threads and peak memory of one must not influence another.
"""

from __future__ import annotations

import json
import sys

from marstts.benchmark.measures import measure
from marstts.benchmark.plan import Case
from marstts.errors import MarsError


def main() -> None:
    """Read the case from standard input, and print the rows or exit with a sentence."""
    try:
        rows = measure(Case.model_validate_json(sys.stdin.read()))
    except MarsError as error:
        sys.exit(str(error))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
