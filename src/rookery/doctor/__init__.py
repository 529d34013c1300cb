"""`rookery doctor`: checks of a cluster and of this machine, over a snapshot of both; docs/doctor.md has the use."""

from rookery.doctor.checks import CHECKS
from rookery.doctor.findings import Check, Finding, Seen, Severity, examine
from rookery.doctor.gathering import gather
from rookery.doctor.snapshot import ClusterSnapshot

__all__ = ["CHECKS", "Check", "ClusterSnapshot", "Finding", "Seen", "Severity", "examine", "gather"]
