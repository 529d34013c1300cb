"""The JSON that nodes exchange, and the choice of the leader. `test_service` runs elections on a broker."""

import msgspec
import pytest

from rookery.registry.election import Assignment, NodeIdentity, choose_leader, read_identity


def node(port: int, *, eligible: bool = True, host: str = "h") -> bytes:
    return msgspec.json.encode(NodeIdentity(host=host, port=port, master_eligibility=eligible))


def test_the_identity_is_encoded_as_by_confluents_nodes() -> None:
    identity = NodeIdentity(host="h", port=8081, master_eligibility=True, scheme="https")
    assert msgspec.json.decode(msgspec.json.encode(identity)) == {
        "version": 1,
        "host": "h",
        "port": 8081,
        "master_eligibility": True,
        "scheme": "https",
    }


def test_identities_and_assignments_of_confluents_nodes_are_decoded() -> None:
    text = b'{"version":1,"host":"h","port":8081,"master_eligibility":true,"scheme":"http","leader":false,"new":1}'
    assert read_identity(text) == NodeIdentity(host="h", port=8081, master_eligibility=True)
    assignment = (
        b'{"version":1,"error":0,"master":"sr-1-uuid","master_identity":'
        b'{"version":1,"host":"h","port":8081,"master_eligibility":true,"scheme":"http","leader":true}}'
    )
    assert msgspec.json.decode(assignment, type=Assignment).leader == read_identity(text)


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"host":1,"port":"x","master_eligibility":3}'])
def test_an_unreadable_identity_is_none(data: bytes) -> None:
    assert read_identity(data) is None


def test_the_eligible_node_with_the_smallest_url_leads() -> None:
    chosen = choose_leader({"m1": node(9), "m2": node(5), "m3": node(1, eligible=False), "m4": b"garbage"})
    assert chosen.master == "m2"
    assert chosen.leader == NodeIdentity(host="h", port=5, master_eligibility=True)
    assert msgspec.json.decode(msgspec.json.encode(chosen))["error"] == 0


def test_without_an_eligible_node_there_is_no_leader() -> None:
    chosen = choose_leader({"m1": node(9, eligible=False)})
    assert chosen.leader is None
    assert msgspec.json.decode(msgspec.json.encode(chosen)) == {"version": 1, "error": 0}


def test_two_nodes_at_one_address_are_an_error() -> None:
    chosen = choose_leader({"m1": node(9), "m2": node(9)})
    assert chosen.error == 1
    assert chosen.leader is None


def test_urls_and_instance_ids() -> None:
    identity = NodeIdentity(host="::1", port=8081, master_eligibility=True)
    assert identity.url == "http://[::1]:8081"
    assert identity.instance_id == "http---1-8081-eligible"


def test_a_changed_identity_has_another_instance_id() -> None:
    said = [
        NodeIdentity(host=host, port=port, scheme=scheme, master_eligibility=eligible)
        for host in ("a", "b")
        for port in (1, 2)
        for scheme in ("http", "https")
        for eligible in (True, False)
    ]
    assert len({identity.instance_id for identity in said}) == len(said)
