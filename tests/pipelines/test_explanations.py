from rookery.pipelines.explanations import explain, with_file_keys

UNRESOLVED = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nope` cannot be resolved. \
Did you mean one of the following? [`id`, `pad`]. SQLSTATE: 42703; line 2 pos 7;
'Project ['nope]
+- SubqueryAlias events
"""
SYNTAX = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'FROM'. SQLSTATE: 42601 (line 3, pos 9)

== SQL ==
SELECT
"""
RAISED = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source: Traceback (most recent call last):
  File "worker.py", line 1, in main
ValueError: inner

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "options.py", line 1, in parse
rookery.spark.option_table.OptionError: unknown option topci; did you mean topic?
unknown option x SQLSTATE: 38000
"""


def test_the_plan_and_the_codes_are_removed() -> None:
    found = explain(UNRESOLVED)
    assert found.line == 2
    assert found.message == (
        "A column, variable, or function parameter with name `nope` cannot be resolved. "
        "Did you mean one of the following? [`id`, `pad`]."
    )


def test_syntax_errors() -> None:
    assert explain(SYNTAX) == ("Syntax error at or near 'FROM'.", 3)


def test_python_exceptions_are_reported_without_the_traceback() -> None:
    assert explain(RAISED) == ("unknown option topci; did you mean topic? unknown option x", None)


def test_exceptions_of_tasks_are_reported_without_the_java_stack_trace() -> None:
    text = "Job aborted: Traceback (most recent call last):\n  x\nformats.errors.FormatError: topic a, offset 7: bad\n"
    assert explain(f"{text}\n\tat org.apache.spark.Foo.bar(Foo.scala:1)\nDriver stacktrace:") == (
        "topic a, offset 7: bad",
        None,
    )


def test_plain_and_long_messages() -> None:
    assert explain("something happened") == ("something happened", None)
    assert len(explain("x" * 2000).message) < 600


def test_options_are_named_as_keys_of_the_file() -> None:
    raised = (
        "Traceback (most recent call last):\nDecodingError: offset 1: bad. Check the option valueFormat, or set onError"
    )
    assert explain(raised).message == "offset 1: bad. Check value_format, or set on_error"
    assert with_file_keys("check the option kafka.bootstrap.servers (kafka.example.com:9092)") == (
        "check bootstrap.servers (kafka.example.com:9092)"
    )
    assert with_file_keys("Check the options kafka.security.protocol, kafka.sasl.* and kafka.ssl.*") == (
        "Check security.protocol, sasl.* and ssl.*"
    )
    assert with_file_keys("failed: x. Check the options kafka.*") == "failed: x. Check platform"
    own = "set the option failOnDataLoss to false"
    assert with_file_keys(own) == own, "the file has this name below options"


def test_columns_named_like_options_keep_their_names() -> None:
    assert "`valueFormat`" in explain(UNRESOLVED.replace("nope", "valueFormat")).message
