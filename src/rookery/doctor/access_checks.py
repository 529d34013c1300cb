"""Checks of certificates, rules, passwords and quotas. Pure."""

from collections.abc import Iterator

from rookery.base.codes import AclOperation, AclPermission, PatternType
from rookery.base.quota_entities import DEFAULT
from rookery.client.admin import AclBinding, QuotaEntity
from rookery.doctor.findings import Check, Seen, Severity
from rookery.doctor.snapshot import ClusterSnapshot

_DAY_MS = 86_400_000
_SOON_MS, _VERY_SOON_MS = 30 * _DAY_MS, 7 * _DAY_MS
_ITERATIONS_MIN = 8192
_CHANGES = frozenset(
    {AclOperation.ALL, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS}
)
# Below these, a client does not get far.
_QUOTA_MINIMA = {
    "producer_byte_rate": 1024.0,
    "consumer_byte_rate": 1024.0,
    "request_percentage": 1.0,
    "controller_mutation_rate": 0.1,
    "connection_creation_rate": 1.0,
}


def certificates(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for certificate in snapshot.certificates:
        left_ms = certificate.expires_ms - snapshot.at_ms
        if left_ms < _SOON_MS:
            text = "has expired" if left_ms <= 0 else f"expires in {left_ms // _DAY_MS} day(s)"
            yield Seen(
                subject=f"listener {certificate.address}",
                text=f"the certificate {text}",
                command="rookery secure renew DIRECTORY",
                advice="if rookery secure made it; else issue another one. Key stores are read again without a restart",
                severity=Severity.ERROR if left_ms < _VERY_SOON_MS else Severity.WARNING,
            )


def everyone_may_change(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for acl in snapshot.acls:
        if (
            acl.principal == "User:*"
            and acl.host == "*"
            and acl.permission is AclPermission.ALLOW
            and acl.operation in _CHANGES
            and acl.pattern.name == "*"
            and acl.pattern.pattern_type is PatternType.LITERAL
        ):
            kind = acl.pattern.type.name.lower()
            yield Seen(
                subject=f"{kind} *",
                text=f"every user may {acl.operation.name} every {kind}",
                command=_deletion(acl, kind),
            )


def prefix_star(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for acl in snapshot.acls:
        if acl.pattern.pattern_type is PatternType.PREFIXED and acl.pattern.name == "*":
            kind = acl.pattern.type.name.lower()
            yield Seen(
                subject=acl.principal,
                text=f"a rule for the prefix * of {kind}s: it matches names that begin with a star, that is none",
                command=_deletion(acl, kind) + " --prefix",
                advice="then add it again without --prefix: '*' alone is all",
            )


def _deletion(acl: AclBinding, kind: str) -> str:
    user = acl.principal.removeprefix("User:")
    option = kind.replace("_", "-")
    resource = "--cluster" if option == "cluster" else f"--{option} '{acl.pattern.name}'"
    return f"rookery acls delete --user '{user}' --operation {acl.operation.name.lower()} {resource}"


def weak_passwords(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for user in snapshot.scram_users:
        if user.iterations and min(user.iterations.values()) < _ITERATIONS_MIN:
            yield Seen(
                subject=f"user {user.name}",
                text=f"{min(user.iterations.values())} iterations",
                command=f"rookery users create {user.name} --generate --replace",
            )


def small_quotas(snapshot: ClusterSnapshot) -> Iterator[Seen]:
    for entity, quotas in snapshot.quotas.items():
        for name, value in sorted(quotas.items()):
            if name in _QUOTA_MINIMA and value < _QUOTA_MINIMA[name]:
                yield Seen(
                    subject=str(entity),
                    text=f"{name}={value:g}",
                    command=f"rookery quotas delete {_entity_options(entity)} --quota {name}",
                )


def _entity_options(entity: QuotaEntity) -> str:
    parts = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
    return " ".join(
        f"--default-{kind}" if name is DEFAULT else f"--{kind} '{name}'"
        for kind, name in parts.items()
        if name is not None
    )


CHECKS = (
    Check(
        id="certificate-expiry",
        severity=Severity.WARNING,
        title="a certificate that expires within 30 days (7 days: error)",
        why="After that, no client and no other broker connects.",
        run=certificates,
    ),
    Check(
        id="everyone-may-change",
        severity=Severity.WARNING,
        title="a rule that allows every user to write, delete or alter everything of a type",
        why="Any user, also one with a stolen password, can destroy data.",
        run=everyone_may_change,
    ),
    Check(
        id="prefix-star",
        severity=Severity.WARNING,
        title="a rule for the prefix *",
        why="It looks as if it was for everything, and is for nothing.",
        run=prefix_star,
    ),
    Check(
        id="scram-iterations",
        severity=Severity.NOTE,
        title="a SCRAM password with fewer than 8192 iterations",
        why="A stolen hash is guessed sooner.",
        run=weak_passwords,
    ),
    Check(
        id="small-quotas",
        severity=Severity.WARNING,
        title="quotas near zero",
        why="The client is throttled so much that it looks as if it hung.",
        run=small_quotas,
    ),
)
