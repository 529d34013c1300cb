"""Apache Kafka's command-line tools, run as in their scripts: a class and its arguments.

`scripts/conformance-setup.sh` downloads the jars to `.cache/java`; `ROOKERY_JAVA_JARS` names another directory.
"""

import os
import subprocess
from pathlib import Path

JARS = Path(os.environ.get("ROOKERY_JAVA_JARS", Path(__file__).parents[2] / ".cache" / "java"))
TIMEOUT_S = 90

TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "storage": "kafka.tools.StorageTool",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


def tool_command(tool: str, *arguments: str) -> list[str]:
    return ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", f"{JARS}/*", TOOLS[tool], *arguments]


def run_tool(tool: str, *arguments: str, text: str = "", fails: bool = False) -> str:
    """Run `kafka-<tool>`; returns its output. `fails` expects a non-zero exit code instead of zero."""
    command = tool_command(tool, *arguments)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    output = done.stdout + "".join(
        line for line in done.stderr.splitlines(keepends=True) if not line.startswith("SLF4J")
    )
    assert (done.returncode != 0) == fails, f"kafka-{tool} {arguments} ended with {done.returncode}:\n{output}"
    return output


def speak_classic(bootstrap: str) -> None:
    """Finalize transaction.version 1, with which Java's producers add partitions to transactions themselves."""
    run_tool("features", "--bootstrap-server", bootstrap, "downgrade", "--feature", "transaction.version=1")
