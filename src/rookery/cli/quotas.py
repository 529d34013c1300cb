"""`rookery quotas`: set, list, delete."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rookery.cli import completion
from rookery.cli.app import App
from rookery.cli.options import DEFAULT_BOOTSTRAP_SERVER, DEFAULT_TIMEOUT_S, BootstrapServer, Json, Timeout
from rookery.cli.session import with_admin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rookery.base.quota_entities import QuotaEntity

app = App(help="Limit what users, client ids and addresses use of the brokers.")

User = Annotated[
    str | None, typer.Option("--user", "-u", metavar="NAME", help="A user.", autocompletion=completion.users)
]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="A client.id.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="An address of clients.")]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="All users without a quota of their own.")]
DefaultClientId = Annotated[
    bool, typer.Option("--default-client-id", help="All client ids without a quota of their own.")
]
DefaultIp = Annotated[bool, typer.Option("--default-ip", help="All addresses without a quota of their own.")]


@app.command(
    "set",
    epilog="Examples:\n\nrookery quotas set --user alice --produce-rate 10MB --consume-rate 20MB"
    "\n\nrookery quotas set --user alice --client-id batch --request-percentage 50"
    "\n\nrookery quotas set --default-user --produce-rate 1MB\n\nrookery quotas set --default-ip --connection-rate 20",
)
def set_(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    produce_rate: Annotated[
        str | None, typer.Option("--produce-rate", metavar="BYTES", help="Bytes per second, such as 10MB or 512KiB.")
    ] = None,
    consume_rate: Annotated[
        str | None, typer.Option("--consume-rate", metavar="BYTES", help="Bytes per second, such as 10MB or 512KiB.")
    ] = None,
    request_percentage: Annotated[
        float | None, typer.Option("--request-percentage", metavar="P", min=0, help="Time of one thread, in percent.")
    ] = None,
    mutation_rate: Annotated[
        float | None,
        typer.Option("--mutation-rate", metavar="N", min=0, help="Partitions created or deleted per second."),
    ] = None,
    connection_rate: Annotated[
        float | None, typer.Option("--connection-rate", metavar="N", min=0, help="New connections per second.")
    ] = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Set quotas of a user, of a client id, of both together, or of an address. The other quotas stay."""
    from rookery.cli.quota_words import check_keys, parse_rate, quota_entity

    entity = quota_entity(
        user=user,
        default_user=default_user,
        client_id=client_id,
        default_client_id=default_client_id,
        ip=ip,
        default_ip=default_ip,
    )
    given = {
        "producer_byte_rate": None if produce_rate is None else parse_rate(produce_rate, "--produce-rate"),
        "consumer_byte_rate": None if consume_rate is None else parse_rate(consume_rate, "--consume-rate"),
        "request_percentage": request_percentage,
        "controller_mutation_rate": mutation_rate,
        "connection_creation_rate": connection_rate,
    }
    values = {key: value for key, value in given.items() if value is not None}
    if not values:
        raise typer.BadParameter("give a quota: --produce-rate, --consume-rate, --request-percentage, ...")
    check_keys(entity, values)
    (outcome,) = with_admin(bootstrap_server, timeout_s, lambda admin: admin.alter_client_quotas({entity: values}))
    outcome.check()
    _report({entity: values}, "set", as_json=as_json)


@app.command("list", epilog="Examples:\n\nrookery quotas list\n\nrookery quotas list --user alice --json")
def list_(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List quotas: all, or those of entities that have the named parts."""
    from rookery.base.quota_entities import DEFAULT
    from rookery.cli.quota_words import quota_entity

    options = (user, client_id, ip, default_user, default_client_id, default_ip)
    parts: Any = {}
    if any(options):
        entity = quota_entity(
            user=user,
            default_user=default_user,
            client_id=client_id,
            default_client_id=default_client_id,
            ip=ip,
            default_ip=default_ip,
        )
        parts = {kind: DEFAULT if name is None else name for kind, name in entity.parts()}
    found = with_admin(bootstrap_server, timeout_s, lambda admin: admin.describe_client_quotas(parts))
    _print(found, as_json=as_json)


@app.command(
    "delete",
    epilog="Examples:\n\nrookery quotas delete --user alice\n\n"
    "rookery quotas delete --user alice --quota producer_byte_rate",
)
def delete(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientId = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    quotas: Annotated[
        list[str] | None,
        typer.Option("--quota", metavar="NAME", help="Only this quota, such as producer_byte_rate. Repeatable."),
    ] = None,
    as_json: Json = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    timeout_s: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Delete the quotas of exactly this entity, or some of them."""
    from rookery.cli.quota_words import quota_entity
    from rookery.client.admin import Admin

    entity = quota_entity(
        user=user,
        default_user=default_user,
        client_id=client_id,
        default_client_id=default_client_id,
        ip=ip,
        default_ip=default_ip,
    )

    async def work(admin: Admin) -> dict[str, float]:
        existing = (await admin.describe_client_quotas()).get(entity, {})
        chosen = {key: value for key, value in existing.items() if not quotas or key in quotas}
        _check_exist(entity, existing, chosen, quotas or [])
        removals: dict[str, float | None] = dict.fromkeys(chosen)
        (outcome,) = await admin.alter_client_quotas({entity: removals})
        outcome.check()
        return chosen

    _report({entity: with_admin(bootstrap_server, timeout_s, work)}, "deleted", as_json=as_json)


def _check_exist(
    entity: "QuotaEntity", existing: "Mapping[str, float]", chosen: "Mapping[str, float]", wanted: list[str]
) -> None:
    from rookery.cli.errors import CommandError

    missing = [name for name in wanted if name not in chosen]
    if not existing or missing:
        what = f"no quota {missing[0]}" if existing else "no quotas"
        known = f"; it has {', '.join(existing)}" if existing else ": rookery quotas list shows all"
        raise CommandError(f"{entity} has {what}{known}")


def _report(quotas: "Mapping[QuotaEntity, Mapping[str, float]]", done: str, *, as_json: bool) -> None:
    from rookery.cli.quota_words import rate_text

    if as_json:
        _print(quotas, as_json=True)
        return
    for entity, values in quotas.items():
        for key, value in values.items():
            typer.echo(f"{done} {key} of {entity}: {rate_text(key, value)}")


def _print(quotas: "Mapping[QuotaEntity, Mapping[str, float]]", *, as_json: bool) -> None:
    from rookery.cli.output import print_json, print_table
    from rookery.cli.quota_words import rate_text

    ordered = sorted(quotas.items(), key=lambda item: str(item[0]))
    if as_json:
        rows = [
            {
                "entity": [{"type": kind, "name": name, "default": name is None} for kind, name in entity.parts()],
                "quotas": dict(values),
            }
            for entity, values in ordered
        ]
        print_json(rows)
        return
    cells = [
        (str(entity), key, rate_text(key, value)) for entity, values in ordered for key, value in sorted(values.items())
    ]
    print_table(["ENTITY", "QUOTA", "VALUE"], cells)
