"""Generated passwords and salts."""

import secrets
import string
from typing import Final

_LENGTH: Final = 32
_LETTERS: Final = string.ascii_letters + string.digits
_SALT_BYTES: Final = 24


def new_password() -> str:
    """Return a random password of letters and digits, which no shell or file format needs to quote."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def new_salt() -> bytes:
    return secrets.token_bytes(_SALT_BYTES)
