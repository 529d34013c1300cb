"""Creates and deletes SCRAM users with the admin client."""

from collections.abc import Sequence

from rookery.base.errors import ErrorCode
from rookery.base.values import value_class
from rookery.cli.acl_words import principal_of
from rookery.cli.errors import CommandError
from rookery.client.admin import AclBinding, AclFilter, Admin, ScramDeletion, ScramMechanism, ScramUpsertion, ScramUser


@value_class
class RemovedUser:
    """`mechanisms` whose credentials were deleted; `rules` of the user that remain."""

    name: str
    mechanisms: tuple[ScramMechanism, ...]
    rules: tuple[AclBinding, ...]


async def find_user(admin: Admin, name: str) -> ScramUser | None:
    """Return a user; None if it has no SCRAM credentials."""
    (found,) = await admin.describe_scram_users([name])
    return None if found.error is ErrorCode.RESOURCE_NOT_FOUND else found.check()


async def create_user(
    admin: Admin,
    name: str,
    password: str,
    mechanisms: Sequence[ScramMechanism],
    iterations: int,
    *,
    replace: bool = False,
) -> None:
    """Store credentials for each mechanism. Raises CommandError if the user exists, unless `replace` is set."""
    if not replace and await find_user(admin, name) is not None:
        raise CommandError(f"user {name} exists already: rookery users create {name} --replace sets its password")
    for mechanism in mechanisms:
        # A request may have a user only once.
        wanted = ScramUpsertion(user=name, password=password, mechanism=mechanism, iterations=iterations)
        (outcome,) = await admin.alter_scram_users(upsertions=[wanted])
        outcome.check()


async def delete_user(admin: Admin, name: str, mechanisms: Sequence[ScramMechanism] = ()) -> RemovedUser:
    """Delete the credentials of a user, of some mechanisms or all. Raises ApiError if there are none."""
    found = (await admin.describe_scram_users([name]))[0].check()
    chosen = tuple(mechanisms or found.iterations)
    for mechanism in chosen:
        (outcome,) = await admin.alter_scram_users(deletions=[ScramDeletion(name, mechanism)])
        outcome.check()
    return RemovedUser(name, chosen, await rules_of(admin, name))


async def rules_of(admin: Admin, name: str) -> tuple[AclBinding, ...]:
    """Return the rules of a user; none if the brokers have no authorizer, or if they may not be seen."""
    from rookery.base.errors import ApiError

    try:
        return tuple(await admin.describe_acls(AclFilter(principal=principal_of(name))))
    except ApiError as error:
        if error.code in (ErrorCode.SECURITY_DISABLED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return ()
        raise
