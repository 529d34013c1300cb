"""The delegation tokens of an image, by their ids."""

from rookery.base.errors import CorruptionError
from rookery.metadata.records import DelegationTokenRecord
from rookery.protocol.principal import parse_principal
from rookery.security.delegation_tokens import DelegationToken


def token_of(record: DelegationTokenRecord) -> DelegationToken:
    try:
        return DelegationToken(
            token_id=record.token_id,
            owner=parse_principal(record.owner),
            requester=parse_principal(record.requester),
            renewers=tuple(map(parse_principal, record.renewers)),
            issue_ms=record.issue_timestamp,
            max_ms=record.max_timestamp,
            expiry_ms=record.expiration_timestamp,
        )
    except ValueError as error:
        raise CorruptionError(f"the metadata log has an unreadable delegation token: {error}") from error


def token_record(token: DelegationToken) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=tuple(map(str, token.renewers)),
        issue_timestamp=token.issue_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expiry_ms,
        token_id=token.token_id,
    )
