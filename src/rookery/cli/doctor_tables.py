"""The output of `rookery doctor`: findings as a table and as JSON."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import typer

from rookery.cli.output import Styled, print_table
from rookery.doctor import Check, ClusterSnapshot, Finding, Severity

_STYLES = {Severity.NOTE: "dim", Severity.WARNING: "yellow", Severity.ERROR: "bold red"}


def print_findings(snapshot: ClusterSnapshot, checks: Sequence[Check], findings: Sequence[Finding]) -> None:
    """Print a table of the findings, why each kind matters, what was not examined, and a summary."""
    if findings:
        rows = [
            (
                Styled(each.severity.word, _STYLES[each.severity]),
                each.check.id,
                each.subject,
                each.seen,
                _remedy(each),
            )
            for each in findings
        ]
        print_table(["SEVERITY", "CHECK", "SUBJECT", "SEEN", "WHAT TO DO"], rows)
        typer.echo("\nWhy it matters:")
        for check in dict.fromkeys(each.check for each in findings):
            typer.echo(f"  {check.id}: {check.why}")
        typer.echo()
    for sentence in snapshot.unseen:
        typer.echo(f"not examined: {sentence}")
    typer.echo(f"{len(checks)} checks: {_summary(findings)}")


def _remedy(finding: Finding) -> str:
    return "; ".join(filter(None, (finding.command, finding.advice)))


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    parts = [
        f"{counts[severity]} {severity.word}{'' if counts[severity] == 1 else 's'}"
        for severity in sorted(Severity, reverse=True)
        if counts[severity]
    ]
    return ", ".join(parts) or "nothing found"


def as_json_value(snapshot: ClusterSnapshot, checks: Sequence[Check], findings: Sequence[Finding]) -> dict[str, Any]:
    counts = Counter(finding.severity for finding in findings)
    return {
        "at_ms": snapshot.at_ms,
        "brokers": len(snapshot.brokers),
        "topics": len(snapshot.topics),
        "checks": [check.id for check in checks],
        "counts": {severity.word: counts[severity] for severity in Severity},
        "findings": [
            {
                "check": each.check.id,
                "severity": each.severity.word,
                "subject": each.subject,
                "seen": each.seen,
                "why": each.check.why,
                "command": each.command or None,
                "advice": each.advice or None,
            }
            for each in findings
        ],
        "not_examined": list(snapshot.unseen),
    }
