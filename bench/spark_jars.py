"""The jars of Spark's connector: `scripts/conformance-setup.sh` downloads them to `.cache/java-spark`."""

import os
from pathlib import Path

JARS = Path(os.environ.get("ROOKERY_SPARK_JARS", Path(__file__).resolve().parent.parent / ".cache" / "java-spark"))


def spark_jars() -> str:
    """Return the value of `spark.jars`."""
    jars = sorted(map(str, JARS.glob("*.jar")))
    if not jars:
        raise FileNotFoundError(f"there are no jars in {JARS}: run scripts/conformance-setup.sh")
    return ",".join(jars)
