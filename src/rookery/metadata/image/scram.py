"""The SCRAM credentials of an image, by user and mechanism."""

from typing import TypeAlias

from rookery.base.errors import CorruptionError
from rookery.metadata.records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from rookery.security.scram_credentials import ScramCredential, ScramMechanism

ScramKey: TypeAlias = tuple[str, ScramMechanism]


def scram_key_of(record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> ScramKey:
    try:
        return record.name, ScramMechanism(record.mechanism)
    except ValueError as error:
        raise CorruptionError(f"the metadata log has an unreadable SCRAM credential: {error}") from error


def scram_credential_of(record: UserScramCredentialRecord) -> ScramCredential:
    return ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


def scram_record(key: ScramKey, credential: ScramCredential) -> UserScramCredentialRecord:
    user, mechanism = key
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
