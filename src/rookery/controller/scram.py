"""AlterUserScramCredentials (KIP-554)."""

from collections.abc import Sequence

from rookery.base.errors import ApiError, ErrorCode
from rookery.controller.decision import RECORDS_PER_REQUEST_MAX, TOO_LARGE, ControllerResult, Steps, error_outcome
from rookery.metadata.image import ClusterImage
from rookery.metadata.image.scram import scram_record
from rookery.metadata.outcomes import OK, Outcome
from rookery.metadata.records import MetadataRecord, RemoveUserScramCredentialRecord
from rookery.metadata.security_requests import AlteredUser, ScramDeletion, ScramUpsertion
from rookery.security.scram_credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism, credential_of

_TWICE = Outcome(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def steps_to_alter_scram(
    image: ClusterImage, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
) -> Steps[list[AlteredUser]]:
    """Delete and set credentials.

    A user may be in a request once, as in Kafka: two mechanisms of one user need two requests. The outcome is per user,
    and the first error of a user stays.
    """
    records: dict[str, MetadataRecord] = {}
    outcomes: dict[str, Outcome] = {}
    changes: list[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
    for change in changes:
        yield
        if outcomes.get(change.user, OK).code is not ErrorCode.NONE:
            continue
        if change.user in outcomes:
            del records[change.user]
            outcomes[change.user] = _TWICE
            continue
        try:
            records[change.user] = _record(image, change)
            outcomes[change.user] = OK
        except ApiError as error:
            outcomes[change.user] = error_outcome(error)
    if len(records) > RECORDS_PER_REQUEST_MAX:
        return ControllerResult((), [AlteredUser(user, TOO_LARGE) for user in outcomes])
    return ControllerResult(tuple(records.values()), [AlteredUser(user, outcome) for user, outcome in outcomes.items()])


def _record(image: ClusterImage, change: ScramDeletion | ScramUpsertion) -> MetadataRecord:
    if not change.user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    try:
        mechanism = ScramMechanism(change.mechanism)
    except ValueError:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism") from None
    if isinstance(change, ScramDeletion):
        if (change.user, mechanism) not in image.scram:
            text = "Attempt to delete a user credential that does not exist"
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, text)
        return RemoveUserScramCredentialRecord(change.user, mechanism)
    if change.iterations < MIN_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salted_password:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty")
    credential = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
    return scram_record((change.user, mechanism), credential)
