"""`rookery secure`: init, renew."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rookery.cli.app import App
from rookery.cli.errors import extra_required
from rookery.cli.options import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rookery.node.secured_cluster import SecuredCluster
    from rookery.node.secured_files import NodeCertificate

app = App(help="Make the certificates, users and settings of a secured cluster.")

_THIS_MACHINE = "127.0.0.1"
_NODE_DAYS = 365

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", file_okay=False, help="The directory of the files.")]
Days = Annotated[
    int, typer.Option("--days", metavar="N", min=1, max=36500, help="How long the nodes' certificates are valid.")
]


@app.command(
    "init",
    epilog="Examples:\n\nrookery secure init mycluster\n\nrookery secure init mycluster --brokers 3"
    "\n\nrookery secure init mycluster --nodes kafka1.example.com,kafka2.example.com,kafka3.example.com"
    "\n\nrookery secure init mycluster --nodes kafka1/10.0.0.1,kafka2/10.0.0.2,kafka3/10.0.0.3 --path /etc/rookery",
)
@extra_required("security")
def init(
    directory: DirectoryArgument,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="HOST[:PORT][/NAME...],...",
            help="The machines, by the names that clients use; more names and addresses follow slashes.",
        ),
    ] = None,
    brokers: Annotated[
        int | None, typer.Option("--brokers", metavar="N", min=1, max=9, help="How many nodes run on this machine.")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option("--path", metavar="DIR", help="Where each node's directory will be on its own machine."),
    ] = None,
    registry: Annotated[
        str | None,
        typer.Option(
            "--registry", metavar="URL", help="Run a schema registry in the first node, at https://HOST:PORT."
        ),
    ] = None,
    days: Days = _NODE_DAYS,
    as_json: Json = False,
) -> None:
    """Make an authority, certificates, an administrator and ready settings for the nodes of a new cluster.

    Without --nodes, the cluster runs on this machine and listens on its loopback interface. Nothing is overwritten.
    """
    import socket
    from uuid import uuid4

    from rookery.base.clock import SystemClock
    from rookery.base.files import OsFiles
    from rookery.base.types import encode_uuid
    from rookery.cli.output import print_json
    from rookery.node.secured_cluster import plan_cluster
    from rookery.node.secured_files import make_cluster_files

    if nodes is not None and brokers is not None:
        raise typer.BadParameter("--nodes names all nodes: give one of the two", param_hint="--brokers")
    if path is not None and not path.is_absolute():
        raise typer.BadParameter(f"'{path}' must be absolute", param_hint="--path")
    cluster = plan_cluster(
        directory.absolute(),
        [_THIS_MACHINE] * (brokers or 1) if nodes is None else nodes.split(","),
        machine_name=socket.gethostname(),
        path=path,
        registry=registry,
    )
    cluster_id = encode_uuid(uuid4()).replace("-", "_")
    certificates = make_cluster_files(
        OsFiles(), cluster, cluster_id=cluster_id, now_ms=SystemClock().now_ms(), days=days
    )
    if as_json:
        print_json(_as_json(cluster, cluster_id, certificates))
    else:
        _print(cluster, cluster_id, certificates)


@app.command("renew", epilog="Example: rookery secure renew mycluster --days 90")
@extra_required("security")
def renew(directory: DirectoryArgument, days: Days = _NODE_DAYS, as_json: Json = False) -> None:
    """Make new keys and certificates for all nodes, from the same authority and for the same names.

    A running node uses its new file without a restart. Clients need no change.
    """
    from rookery.base.clock import SystemClock
    from rookery.base.files import OsFiles
    from rookery.cli.output import print_json
    from rookery.node.secured_files import renew_certificates

    renewed = renew_certificates(OsFiles(), directory.absolute(), now_ms=SystemClock().now_ms(), days=days)
    if as_json:
        print_json([_certificate_json(each) for each in renewed])
        return
    _print_certificates(renewed)
    typer.echo(
        "Copy the file of each node that runs on another machine; nodes read a new file by themselves.", err=True
    )


def _as_json(cluster: "SecuredCluster", cluster_id: str, certificates: "Sequence[NodeCertificate]") -> dict[str, Any]:
    from rookery.node.secured_cluster import (
        ADMIN_FILE,
        CLIENTS,
        LIBRDKAFKA_FILE,
        SERVER_FILE,
        TRUSTED,
        next_commands,
    )

    clients = cluster.directory / CLIENTS
    return {
        "directory": str(cluster.directory),
        "cluster_id": cluster_id,
        "bootstrap_servers": cluster.bootstrap_servers,
        "nodes": [
            {
                "id": node.node_id,
                "address": node.address,
                "names": list(node.names),
                "config": str(node.path / SERVER_FILE),
                "expires": certificate.expires.isoformat(),
            }
            for node, certificate in zip(cluster.nodes, certificates, strict=True)
        ],
        "clients": {
            "properties": str(clients / ADMIN_FILE),
            "librdkafka": str(clients / LIBRDKAFKA_FILE),
            "certificates": str(clients / TRUSTED),
        },
        "next": [line for _, lines in next_commands(cluster, cluster_id) for line in lines],
    }


def _certificate_json(certificate: "NodeCertificate") -> dict[str, str]:
    return {
        "node": certificate.node,
        "file": str(certificate.path),
        "expires": certificate.expires.isoformat(),
    }


def _print(cluster: "SecuredCluster", cluster_id: str, certificates: "Sequence[NodeCertificate]") -> None:
    from rookery.node.secured_cluster import ADMIN_FILE, CLIENTS, LIBRDKAFKA_FILE, next_commands, steps_text

    _print_certificates(certificates)
    clients = cluster.directory / CLIENTS
    typer.echo(
        f"\nMade {cluster.directory}, readable by you only: it has keys and passwords."
        f"\nThe user admin may do everything; its settings are in"
        f"\n  {clients / ADMIN_FILE} (Rookery and Java)\n  {clients / LIBRDKAFKA_FILE}\n"
    )
    typer.echo(steps_text(next_commands(cluster, cluster_id)), nl=False)


def _print_certificates(certificates: "Sequence[NodeCertificate]") -> None:
    from rookery.cli.output import print_table

    rows = [(each.node, f"{each.expires:%Y-%m-%d}", str(each.path)) for each in certificates]
    print_table(["NODE", "EXPIRES", "FILE"], rows)
