"""Schemas for the tests: of a customer, whose fax number gives way to an email address."""

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
# The same as the first, but for what has no meaning.
CUSTOMER_SPACED = CUSTOMER.replace(":", " : ").replace(",", ", ")
