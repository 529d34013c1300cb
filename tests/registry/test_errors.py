from http import HTTPStatus

import pytest

from rookery.registry import errors
from rookery.registry.errors import RegistryError

# Confluent's codes and messages, on which clients match.
TEXTS = [
    (errors.subject_not_found("s"), 40401, "Subject 's' not found."),
    (errors.version_not_found(3), 40402, "Version 3 not found."),
    (errors.schema_not_found(), 40403, "Schema not found"),
    (errors.schema_not_found(7), 40403, "Schema 7 not found"),
    (
        errors.subject_soft_deleted("s"),
        40404,
        "Subject 's' was soft deleted.Set permanent=true to delete permanently",
    ),
    (
        errors.subject_not_soft_deleted("s"),
        40405,
        "Subject 's' was not deleted first before being permanently deleted",
    ),
    (
        errors.version_soft_deleted("s", 2),
        40406,
        "Subject 's' Version 2 was soft deleted.Set permanent=true to delete permanently",
    ),
    (
        errors.version_not_soft_deleted("s", 2),
        40407,
        "Subject 's' Version 2 was not deleted first before being permanently deleted",
    ),
    (errors.config_not_found("s"), 40408, "Subject 's' does not have subject-level compatibility configured"),
    (errors.mode_not_found("s"), 40409, "Subject 's' does not have subject-level mode configured"),
    (
        errors.incompatible_schema("s", "[why]"),
        409,
        'Schema being registered is incompatible with an earlier schema for subject "s", details: [why]',
    ),
    (errors.invalid_schema("why"), 42201, "why"),
    (
        errors.invalid_version("x"),
        42202,
        "The specified version 'x' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    ),
    (
        errors.invalid_compatibility(),
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    ),
    (errors.invalid_mode(), 42204, "Invalid mode. Valid values are READWRITE, READONLY, and IMPORT."),
    (errors.operation_not_permitted("why"), 42205, "why"),
    (
        errors.reference_exists("s", 1),
        42206,
        "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=s,version=1}.",
    ),
    (errors.invalid_subject("s"), 42208, "The specified subject 's' is not a valid."),
    (errors.schema_too_large(), 42209, "Register operation failed because schema is too large"),
    (errors.invalid_rule_set("why"), 42210, "why"),
    (errors.store_failed("why"), 50001, "why"),
    (errors.timed_out("why"), 50002, "why"),
    (errors.forwarding_failed("why"), 50003, "why"),
    (errors.unknown_leader("why"), 50004, "why"),
]


@pytest.mark.parametrize(("error", "code", "message"), TEXTS)
def test_codes_and_texts(error: RegistryError, code: int, message: str) -> None:
    assert (error.code, error.message, str(error)) == (code, message, message)
    assert HTTPStatus(error.status).value == int(str(code)[:3])
