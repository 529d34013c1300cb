"""Tokens for tests, in the format of an identity provider's, and the time of those tests."""

import base64
import json

NOW_S = 1_700_000_000.0


def jwt(**claims: object) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({}, claims)]
    return ".".join([*parts, "signature"])
