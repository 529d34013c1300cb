"""`--add-scram`, with the rules of kafka-storage."""

import base64

import pytest

from rookery.base.errors import ConfigError
from rookery.security.scram_arguments import parse_scram_user
from rookery.security.scram_credentials import ScramMechanism, derive_credential, salted_password

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
NEW_SALT = b"a new salt"
SALT = base64.b64encode(b"salt").decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "SCRAM-SHA-256=[name=alice,password=secret]",
            ("alice", SHA_256, derive_credential(SHA_256, "secret", NEW_SALT, 4096)),
        ),
        (
            f'SCRAM-SHA-512=[name="alice b",iterations=8192,salt="{SALT}",password="a=b"]',
            ("alice b", SHA_512, derive_credential(SHA_512, "a=b", b"salt", 8192)),
        ),
        (
            f"SCRAM-SHA-256=[name=alice,salt={SALT},saltedpassword="
            f"{base64.b64encode(salted_password(SHA_256, 'secret', b'salt', 4096)).decode()}]",
            ("alice", SHA_256, derive_credential(SHA_256, "secret", b"salt", 4096)),
        ),
    ],
)
def test_users(text: str, expected: object) -> None:
    assert parse_scram_user(text, lambda: NEW_SALT) == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hunter2", r"expected MECHANISM=\[name="),
        ("SCRAM-SHA-256=name=alice,password=hunter2", r"expected MECHANISM=\[name="),
        ("SCRAM-SHA-1=[name=alice,password=hunter2]", "must be one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("SCRAM-SHA-256=[password=hunter2]", "add name="),
        ("SCRAM-SHA-256=[name=alice]", "add password="),
        (f"SCRAM-SHA-256=[name=alice,saltedpassword={SALT}]", "add salt="),
        ("SCRAM-SHA-256=[name=alice,salt=x,password=hunter2]", "salt must be base64"),
        (f"SCRAM-SHA-256=[name=alice,salt={SALT},saltedpassword=hunter2]", "saltedpassword must be base64"),
        (f"SCRAM-SHA-256=[name=alice,salt={SALT},saltedpassword=]", "must not be empty"),
        ("SCRAM-SHA-256=[name=alice,password=hun,ter2]", "part 3 .* cannot have a comma"),
        ("SCRAM-SHA-256=[name=alice,hunter2=x]", "part 2 .* must begin with one of name, salt"),
        ("SCRAM-SHA-256=[name=alice,password=hunter2,iterations=4095]", "iterations must be a number from 4096"),
        ("SCRAM-SHA-256=[name=alice,password=hunter2,iterations=16385]", "iterations must be a number from 4096"),
        ("SCRAM-SHA-256=[name=alice,password=hunter2,iterations=many]", "iterations must be a number from 4096"),
    ],
)
def test_errors_say_what_to_write_and_never_quote(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        parse_scram_user(text, lambda: NEW_SALT)
    assert "hun" not in str(error.value)
    assert "ter2" not in str(error.value)
