"""/openapi.json holds what client generators need."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import Any

import jsonschema_rs
import pytest

from functions.kernel.contract import BadTable, Request, Response, function
from functions.kernel.table import table
from triggers.docs import docs_page
from triggers.openapi import openapi

DOCUMENT = openapi(dict(table()))
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS: list[dict[str, Any]] = [
    operation for methods in DOCUMENT["paths"].values() for operation in methods.values()
]
NULL = {"type": "null"}


def schemas_within(schema: Any, at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A schema and those that it is made of, each with its place."""
    if not isinstance(schema, dict):
        return
    yield at, schema
    for name, field in schema.get("properties", {}).items():
        yield from schemas_within(field, f"{at}.{name}")
    for word in ("items", "additionalProperties"):
        yield from schemas_within(schema.get(word), f"{at}.{word}")
    for word in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for nth, part in enumerate(schema.get(word, [])):
            yield from schemas_within(part, f"{at}.{word}.{nth}")


ALL = [found for name, schema in SCHEMAS.items() for found in schemas_within(schema, name)]
ALL += [
    found
    for operation in OPERATIONS
    for parameter in operation["parameters"]
    for found in schemas_within(parameter["schema"], f"{operation['operationId']}.{parameter['name']}")
]


def test_every_name_of_an_operation_or_schema_is_one_of_a_kind_even_where_case_is_lost() -> None:
    operations = Counter(operation["operationId"].casefold() for operation in OPERATIONS)
    schemas = Counter(name.casefold() for name in SCHEMAS)

    assert len(OPERATIONS) == sum(len(list(declared.doors)) for declared in table().values())
    assert {name for name, count in operations.items() if count > 1} == set()
    assert {name for name, count in schemas.items() if count > 1} == set()
    assert [name for name in SCHEMAS if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name)] == []


def test_no_schema_has_a_title_since_generators_name_classes_by_them() -> None:
    assert [at for at, schema in ALL if "title" in schema] == []


def test_a_union_is_of_one_type_and_null() -> None:
    unions = [(at, schema.get("anyOf", schema.get("oneOf"))) for at, schema in ALL]

    wrong = [(at, of) for at, of in unions if of is not None and (len(of) != 2 or of.count(NULL) != 1)]

    assert wrong == []


def test_no_part_of_a_url_may_be_null() -> None:
    for operation in OPERATIONS:
        for parameter in operation["parameters"]:
            schema = parameter["schema"]
            assert "anyOf" not in schema, (operation["operationId"], parameter)
            assert schema.get("default", "none") is not None, (operation["operationId"], parameter)
            assert parameter["required"] or parameter["in"] != "path", (operation["operationId"], parameter)


def test_the_ways_to_prove_who_asks_are_declared_and_no_function_asks_for_another() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]

    assert schemes["token"]["scheme"] == "bearer"
    assert DOCUMENT["security"] == [*({name: []} for name in schemes), {}]
    for name, declared in table().items():
        for operation in (of for of in OPERATIONS if of["x-function"] == name):
            is_open = declared.is_public or ("anyone" in declared.roles and not declared.knows_caller)
            assert (operation.get("security") == []) == is_open, name


def test_an_answer_has_all_its_fields_and_a_request_those_without_a_default() -> None:
    assert set(SCHEMAS["Completed"]["required"]) == set(SCHEMAS["Completed"]["properties"])
    assert set(SCHEMAS["Complete"]["required"]) == {"experiment_id", "val_bpb"}


REQUESTS = {declared.request.__name__: declared.request for declared in table().values()}
ASKED = [
    (name, field, schema)
    for name in (*REQUESTS, "Metric", "Sample")
    for field, schema in SCHEMAS[name].get("properties", {}).items()
]


def test_every_field_of_a_request_is_described_and_has_an_example_that_is_valid() -> None:
    assert [(name, field) for name, field, schema in ASKED if not schema.get("description")] == []
    for name, field, schema in ASKED:
        referred = {"components": DOCUMENT["components"]} if "$ref" in str(schema) else {}
        validator = jsonschema_rs.validator_for({**schema, **referred})
        assert schema.get("examples"), (name, field)
        assert all(validator.is_valid(example) for example in schema["examples"]), (name, field)


ONE_OF: dict[str, dict[str, Any]] = {
    "ChooseLetters": {"all": True},
}
"""Requests that must have one of several fields, with one of them."""


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_the_examples_of_what_a_request_must_have_are_a_request(name: str) -> None:
    schema = SCHEMAS[name]
    shown = {field: schema["properties"][field]["examples"][0] for field in schema.get("required", [])}
    shown |= ONE_OF.get(name, {})

    REQUESTS[name].model_validate(shown, strict=True)


def test_a_field_with_few_values_names_them() -> None:
    assert len(SCHEMAS["RegisterExperiment"]["properties"]["category"]["enum"]) == 14
    assert SCHEMAS["Select"]["properties"]["intent"]["enum"][0] == "auto"
    assert "best.changed" in SCHEMAS["AddWebhook"]["properties"]["types"]["anyOf"][0]["items"]["enum"]


def test_the_text_under_a_field_of_a_class_describes_it_wherever_the_class_is_shown() -> None:
    completed, submitted = SCHEMAS["Completed"]["properties"], SCHEMAS["Submitted"]["properties"]

    assert (
        completed["retest"]["description"] == "The second run, which confirms or demotes a provisional keep."
    )
    assert submitted["next"]["description"] == "What to do now, in a sentence."


@pytest.mark.parametrize("name", ["Policy", "Adapt", "TracePolicy", "Budgets"])
def test_every_value_of_a_policy_is_described(name: str) -> None:
    fields = SCHEMAS[name]["properties"]

    assert [field for field, schema in fields.items() if not schema.get("description")] == []
    if name == "Policy":
        assert "register and submit are refused" in fields["on_abort"]["description"]


SAID = {"action", "duplicate_of", "hint", "next", "replayed", "should_abort", "trust"}
"""What an agent is told to go by."""


def test_what_an_agent_goes_by_is_described_in_every_answer() -> None:
    told = [(name, field, of) for name, s in SCHEMAS.items() for field, of in s.get("properties", {}).items()]

    assert [(name, field) for name, field, of in told if field in SAID and not of.get("description")] == []
    assert {field for _, field, _ in told} >= SAID


def test_the_page_for_people_describes_what_is_asked_and_what_is_answered() -> None:
    page = docs_page(table())

    for said in (
        SCHEMAS["RegisterExperiment"]["properties"]["parent_id"]["description"],
        SCHEMAS["RegisteredExperiment"]["properties"]["duplicate_of"]["description"],
        SCHEMAS["Crashed"]["properties"]["should_abort"]["description"],
    ):
        assert escape(said) in page


class Shown(Request):
    """An answer of token::issue has this name, too."""


class Shade(Response):
    depth: int = 0


def test_two_schemas_of_one_name_are_refused() -> None:
    @function("noun::verb", role="agent")
    async def verb(request: Shown) -> Shade:
        """Answer."""
        return Shade()

    with pytest.raises(BadTable, match="'Shown' names two schemas"):
        openapi({**table(), "noun::verb": verb})
