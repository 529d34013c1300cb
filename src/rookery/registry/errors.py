"""The errors of the registry, with the HTTP statuses, error codes and messages of Confluent's registry.

Clients match on the codes, and some on the messages. `RegistryError` is the only exception that queries and commands
raise; `rest` turns it into a response.
"""

from http import HTTPStatus


class RegistryError(Exception):
    """`status` is the HTTP status, `code` is the registry's `error_code`: mostly the status and two more digits."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = int(status)
        self.code = int(code)
        self.message = message


def http_error(status: int, message: str | None = None) -> RegistryError:
    """Return an error whose code is the HTTP status. The default message is HTTP's phrase, as Confluent's registry
    sends it."""
    return RegistryError(status, status, f"HTTP {status} {HTTPStatus(status).phrase}" if message is None else message)


def denied(principal: str, role: str, subject: str | None, rule: str) -> RegistryError:
    """Begin as Confluent's registry does; then say which role is missing, and which rule would grant it."""
    where = "the whole registry" if subject is None else f"Subject: {subject}"
    message = f"User is denied operation {role.capitalize()} on {where}. {principal} needs the role {role} there, as by"
    return RegistryError(HTTPStatus.FORBIDDEN, 40301, f"{message} {rule}")


def denied_id(principal: str, schema_id: int) -> RegistryError:
    """Name no subjects: the user may not see them."""
    message = f"User is denied operation Read on Schema: {schema_id}. {principal} needs the role read on a subject"
    return RegistryError(HTTPStatus.FORBIDDEN, 40301, f"{message} that has the schema")


def _not_found(code: int, message: str) -> RegistryError:
    return RegistryError(HTTPStatus.NOT_FOUND, code, message)


def _unprocessable(code: int, message: str) -> RegistryError:
    return RegistryError(HTTPStatus.UNPROCESSABLE_ENTITY, code, message)


def _server_error(code: int, message: str) -> RegistryError:
    return RegistryError(HTTPStatus.INTERNAL_SERVER_ERROR, code, message)


def subject_not_found(subject: str) -> RegistryError:
    return _not_found(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return _not_found(40402, f"Version {version} not found.")


def schema_not_found(schema_id: int | None = None) -> RegistryError:
    return _not_found(40403, "Schema not found" if schema_id is None else f"Schema {schema_id} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return _not_found(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return _not_found(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return _not_found(
        40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return _not_found(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def config_not_found(subject: str) -> RegistryError:
    return _not_found(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_found(subject: str) -> RegistryError:
    return _not_found(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible_schema(subject: str, details: str) -> RegistryError:
    message = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
    return RegistryError(HTTPStatus.CONFLICT, HTTPStatus.CONFLICT, message + details)


def invalid_schema(message: str) -> RegistryError:
    return _unprocessable(42201, message)


def invalid_version(version: str) -> RegistryError:
    return _unprocessable(
        42202,
        f"The specified version '{version}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_compatibility() -> RegistryError:
    return _unprocessable(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, "
        "backward_transitive, forward_transitive, and full_transitive",
    )


def invalid_policy(policy: str) -> RegistryError:
    """Confluent's registry ignores an unknown policy. A client that requests LOGICAL (8.x) would then believe that its
    schemas are checked for Flink and Iceberg."""
    return _unprocessable(42203, f"Invalid compatibility policy '{policy}'. Valid values are strict and lenient")


def invalid_mode() -> RegistryError:
    return _unprocessable(42204, "Invalid mode. Valid values are READWRITE, READONLY, and IMPORT.")


def operation_not_permitted(message: str) -> RegistryError:
    return _unprocessable(42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return _unprocessable(42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryError:
    return _unprocessable(42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large() -> RegistryError:
    return _unprocessable(42209, "Register operation failed because schema is too large")


def invalid_rule_set(message: str) -> RegistryError:
    return _unprocessable(42210, message)


def store_failed(message: str) -> RegistryError:
    return _server_error(50001, message)


def timed_out(message: str) -> RegistryError:
    return _server_error(50002, message)


def forwarding_failed(message: str) -> RegistryError:
    return _server_error(50003, message)


def unknown_leader(message: str) -> RegistryError:
    return _server_error(50004, message)
