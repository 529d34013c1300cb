"""The table of all checks, in the order of the documentation."""

from rookery.doctor.access_checks import CHECKS as ACCESS_CHECKS
from rookery.doctor.findings import Check
from rookery.doctor.group_checks import CHECKS as GROUP_CHECKS
from rookery.doctor.machine_checks import CHECKS as MACHINE_CHECKS
from rookery.doctor.partition_checks import CHECKS as PARTITION_CHECKS
from rookery.doctor.setting_checks import CHECKS as SETTING_CHECKS

CHECKS: tuple[Check, ...] = (*PARTITION_CHECKS, *SETTING_CHECKS, *GROUP_CHECKS, *ACCESS_CHECKS, *MACHINE_CHECKS)
