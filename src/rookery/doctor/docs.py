"""Prints the page of all checks: `python -m rookery.doctor.docs > docs/doctor-checks.md`."""

import sys
from collections.abc import Iterator

from rookery.doctor.checks import CHECKS

_HEAD = """# Checks of rookery doctor

Generated from the table in [checks.py](../src/rookery/doctor/checks.py) by `make docs`. [doctor.md](doctor.md) explains
the command.

| check | severity | finds | why it matters |
| --- | --- | --- | --- |
"""


def page() -> str:
    return _HEAD + "".join(f"{row}\n" for row in _rows())


def _rows() -> Iterator[str]:
    for check in CHECKS:
        yield f"| `{check.id}` | {check.severity.word} | {check.title} | {check.why} |"


if __name__ == "__main__":
    sys.stdout.write(page())
