"""Describes and alters the SCRAM credentials of users (KIP-554)."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import partial
from secrets import token_bytes
from typing import Final, Self

from rookery.base.errors import ErrorCode
from rookery.base.values import value_class
from rookery.client.admin.base import AdminPart, as_list
from rookery.client.admin.outcomes import Outcome, check
from rookery.protocol.api import ApiKey
from rookery.protocol.messages import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from rookery.security.scram_credentials import ScramMechanism, salted_password

# Within Kafka's bounds of 4096 to 16384.
SCRAM_ITERATIONS: Final = 8192
_SALT_BYTES: Final = 24


@value_class(kw_only=True)
class ScramUser:
    """A user's mechanisms with the iterations of each, or the error of describing it."""

    name: str
    iterations: Mapping[ScramMechanism, int]
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None

    def check(self) -> Self:
        """Return this user, or raise its error as ApiError."""
        check(self.error, self.message or self.name)
        return self


@value_class(kw_only=True)
class ScramUpsertion:
    """A new password of a user for one mechanism. Only a hash of it is sent; without `salt`, a new one is made."""

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512
    iterations: int = SCRAM_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)


@value_class
class ScramDeletion:
    user: str
    mechanism: ScramMechanism


class UserAdmin(AdminPart):
    async def describe_scram_users(self, users: Iterable[str] | None = None) -> list[ScramUser]:
        """Return users, sorted by name; None: all that have SCRAM credentials. Raises ApiError."""
        names = None if users is None else as_list(users, "users")
        if names == []:
            # A broker takes an empty list for all users.
            return []
        return await self._retry(partial(self._describe_scram_users, names))

    async def _describe_scram_users(self, names: list[str] | None) -> list[ScramUser]:
        users = None if names is None else [UserName(name=name) for name in dict.fromkeys(names)]
        request = DescribeUserScramCredentialsRequest(users=users)
        response = await self._call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        check(response.error_code, response.error_message or "SCRAM users")
        return sorted(map(_user, response.results), key=lambda user: user.name)

    async def alter_scram_users(
        self, *, upsertions: Iterable[ScramUpsertion] = (), deletions: Iterable[ScramDeletion] = ()
    ) -> list[Outcome]:
        """Set and delete credentials; the outcomes are by user. A user may be named once in a call."""
        hashed = [await _hashed(each) for each in as_list(upsertions, "upsertions")]
        deleted = [
            ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
            for each in as_list(deletions, "deletions")
        ]
        rows = await self._call_controller(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            AlterUserScramCredentialsRequest(deletions=deleted, upsertions=hashed),
            lambda response: response.results,
        )
        return [Outcome.of(row.user, row.error_code, row.error_message) for row in rows]


async def _hashed(upsertion: ScramUpsertion) -> ScramCredentialUpsertion:
    salt = token_bytes(_SALT_BYTES) if upsertion.salt is None else upsertion.salt
    # In a thread: it takes longer than any other callback may.
    salted = await asyncio.to_thread(
        salted_password, upsertion.mechanism, upsertion.password, salt, upsertion.iterations
    )
    return ScramCredentialUpsertion(
        name=upsertion.user,
        mechanism=upsertion.mechanism,
        iterations=upsertion.iterations,
        salt=salt,
        salted_password=salted,
    )


def _user(row: DescribeUserScramCredentialsResult) -> ScramUser:
    known = {int(mechanism) for mechanism in ScramMechanism}
    infos = {
        ScramMechanism(info.mechanism): info.iterations for info in row.credential_infos if info.mechanism in known
    }
    return ScramUser(name=row.user, iterations=infos, error=ErrorCode(row.error_code), message=row.error_message)
