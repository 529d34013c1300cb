"""The work of `rookery quorum add` and `remove`.

Finds the directory id and the address of a node by its id, and refuses a removal that would stop the quorum.
"""

from rookery.base.errors import ApiError, ErrorCode
from rookery.base.types import NodeId, TimestampMs
from rookery.cli.client_configs import controllers_config
from rookery.cli.errors import CommandError
from rookery.client.admin import NO_DIRECTORY_ID, Admin, EndpointType, Quorum, QuorumReplica, RaftEndpoint

# A voter that has not fetched for this long does not answer. Kafka's leader resigns after 3 s without a majority.
_SILENT_MS = 6000


async def add_voter(admin: Admin, node: NodeId, endpoint: str | None, timeout_s: float) -> str:
    """Add a voter; return the sentence to print."""
    quorum = await admin.describe_quorum()
    if node in _ids(quorum.voters):
        raise CommandError(f"node {node} is a voter already")
    observer = _observer(quorum, node)
    listener = _listener(quorum)
    address = (
        parse_endpoint(endpoint, listener) if endpoint else await _registered(admin, quorum, node, listener, timeout_s)
    )
    cluster_id = (await admin.describe_cluster()).cluster_id
    try:
        await admin.add_raft_voter(node, observer.directory_id, [address], cluster_id=cluster_id)
    except ApiError as error:
        # The controller has the request, but the cluster's voters are fixed by controller.quorum.voters.
        if error.code is ErrorCode.UNSUPPORTED_VERSION and "ADD_RAFT_VOTER" not in str(error.message):
            error.add_note("voters can be changed with kraft.version 1: rookery features upgrade kraft.version=1")
        raise
    return f"added voter {node} at {address}"


async def remove_voter(admin: Admin, node: NodeId, *, force: bool) -> str:
    """Remove a voter; return the sentence to print."""
    quorum = await admin.describe_quorum()
    voters = [voter for voter in quorum.voters if voter.node_id == node]
    if not voters:
        raise CommandError(f"node {node} is not a voter; the voters are {_listed(_ids(quorum.voters))}")
    problem = removal_problem(quorum, node)
    if problem and not force:
        raise CommandError(f"{problem}. Add --force to remove it anyway.")
    cluster_id = (await admin.describe_cluster()).cluster_id
    await admin.remove_raft_voter(node, voters[0].directory_id, cluster_id=cluster_id)
    return f"removed voter {node}"


def removal_problem(quorum: Quorum, node: NodeId) -> str | None:
    """Return why the voters that remain could not commit anything, or None if they can."""
    rest = [voter for voter in quorum.voters if voter.node_id != node]
    if not rest:
        return f"node {node} is the only voter, and a quorum needs one"
    now_ms = max((voter.last_fetch_ms or 0 for voter in quorum.voters), default=0)
    silent = [voter.node_id for voter in rest if _is_silent(quorum, voter, now_ms)]
    majority = len(rest) // 2 + 1
    if len(rest) - len(silent) >= majority:
        return None
    return (
        f"without node {node}, {majority} of the voters {_listed(_ids(rest))} must answer, "
        f"and {_listed(silent)} {'does' if len(silent) == 1 else 'do'} not"
    )


def parse_endpoint(text: str, listener: str) -> RaftEndpoint:
    """Parse `[LISTENER://]HOST:PORT`; `listener` is the name of the other voters' listener."""
    name, scheme, address = text.rpartition("://")
    host, colon, port = address.rpartition(":")
    if not host or not colon or not port.isdecimal():
        raise CommandError(f"'{text}' must have the form HOST:PORT or LISTENER://HOST:PORT")
    return RaftEndpoint(name if scheme else listener, host.strip("[]"), int(port))


def _is_silent(quorum: Quorum, voter: QuorumReplica, now_ms: TimestampMs) -> bool:
    """Whether the leader has not heard of the voter for a while. Old controllers do not report times."""
    if voter.node_id == quorum.leader_id or now_ms == 0:
        return False
    return voter.last_fetch_ms is None or now_ms - voter.last_fetch_ms > _SILENT_MS


def _observer(quorum: Quorum, node: NodeId) -> QuorumReplica:
    found = [observer for observer in quorum.observers if observer.node_id == node]
    if not found:
        others = (
            f"the observers are {_listed(_ids(quorum.observers))}" if quorum.observers else "there are no observers"
        )
        raise CommandError(
            f"node {node} does not follow the quorum ({others}): format it with --no-initial-controllers "
            "and start it as a controller first"
        )
    # A node with a new disk appears twice for a while: the entry that fetched last is the one that runs.
    newest = max(found, key=lambda observer: observer.last_fetch_ms or 0)
    if newest.directory_id == NO_DIRECTORY_ID:
        raise CommandError(f"the controller does not report the directory id of node {node}: it is too old for this")
    return newest


def _listener(quorum: Quorum) -> str:
    endpoints = quorum.endpoints.get(quorum.leader_id) or next(iter(quorum.endpoints.values()), ())
    return endpoints[0].listener if endpoints else "CONTROLLER"


async def _registered(admin: Admin, quorum: Quorum, node: NodeId, listener: str, timeout_s: float) -> RaftEndpoint:
    """Return the address of a controller that is not a voter. Only controllers return it, so one of them is asked."""
    described = await admin.describe_cluster()
    if described.endpoint_type is not EndpointType.CONTROLLER:
        voters = [f"{endpoint.host}:{endpoint.port}" for each in quorum.endpoints.values() for endpoint in each[:1]]
        if not voters:
            raise CommandError(f"the address of node {node} is not known: add --endpoint HOST:PORT")
        try:
            async with Admin(controllers_config(",".join(voters), timeout_s)) as controllers:
                described = await controllers.describe_cluster()
        except ApiError as error:
            error.add_note(f"the controllers cannot be asked for the address of node {node}: add --endpoint HOST:PORT")
            raise
    for known in described.brokers:
        if known.node_id == node:
            return RaftEndpoint(listener, known.host, known.port)
    raise CommandError(f"node {node} is not registered as a controller: check its process.roles, or add --endpoint")


def _ids(replicas: tuple[QuorumReplica, ...] | list[QuorumReplica]) -> list[NodeId]:
    return sorted({replica.node_id for replica in replicas})


def _listed(nodes: list[NodeId]) -> str:
    return ", ".join(map(str, nodes))
