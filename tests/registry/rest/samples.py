"""Sample schemas: a customer whose fax number is replaced by an email address."""

from typing import Any

import msgspec


def record(name: str, *fields: dict[str, Any]) -> str:
    return msgspec.json.encode({"type": "record", "name": name, "fields": fields}).decode()


NAME: dict[str, Any] = {"name": "name", "type": "string"}
FAX: dict[str, Any] = {"name": "faxNumber", "type": ["null", "string"], "default": None}
EMAIL: dict[str, Any] = {"name": "email", "type": ["null", "string"], "default": None}
EMAIL_NEEDED: dict[str, Any] = {"name": "email", "type": "string"}

CUSTOMER = record("Customer", NAME, FAX)
CUSTOMER_WITH_EMAIL = record("Customer", NAME, EMAIL)
CUSTOMER_INCOMPATIBLE = record("Customer", NAME, EMAIL_NEEDED)
# The same as the first, except for insignificant spaces.
CUSTOMER_SPACED = CUSTOMER.replace(":", " : ").replace(",", ", ")
