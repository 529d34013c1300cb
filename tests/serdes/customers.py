"""A textbook example of schema evolution: a customer's fax number is replaced by an email address."""

import json

OLD_CUSTOMER = json.dumps(
    {
        "type": "record",
        "name": "Customer",
        "namespace": "customerManagement.avro",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "name", "type": "string"},
            {"name": "faxNumber", "type": ["null", "string"], "default": None},
        ],
    }
)
NEW_CUSTOMER = json.dumps(
    {
        "type": "record",
        "name": "Customer",
        "namespace": "customerManagement.avro",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "name", "type": "string"},
            {"name": "email", "type": ["null", "string"], "default": None},
        ],
    }
)
OLD_VALUE = {"id": 1, "name": "Ada", "faxNumber": "555-0100"}
NEW_VALUE = {"id": 2, "name": "Grace", "email": "grace@example.org"}
OLD_AS_NEW = {"id": 1, "name": "Ada", "email": None}
NEW_AS_OLD = {"id": 2, "name": "Grace", "faxNumber": None}
SCHEMAS = {"old": OLD_CUSTOMER, "new": NEW_CUSTOMER}
VALUES = {"old": OLD_VALUE, "new": NEW_VALUE}
# (writer, reader) -> the value that the reader returns.
SEEN = {
    ("old", "old"): OLD_VALUE,
    ("old", "new"): OLD_AS_NEW,
    ("new", "old"): NEW_AS_OLD,
    ("new", "new"): NEW_VALUE,
}
