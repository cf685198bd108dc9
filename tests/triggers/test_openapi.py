"""/openapi.json holds what client generators need."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from typing import Any

import jsonschema_rs
import pytest

from functions.kernel.table import table
from triggers.openapi import docs_page, openapi

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


class Document:
    """The document of every function. It takes long to make, and not while tests are collected."""

    def __init__(self) -> None:
        self.whole = openapi(dict(table()))
        self.schemas: dict[str, Any] = self.whole["components"]["schemas"]
        self.operations: list[dict[str, Any]] = [
            operation for methods in self.whole["paths"].values() for operation in methods.values()
        ]

    def all(self) -> list[tuple[str, dict[str, Any]]]:
        """Each schema, and each part of one, with its place."""
        within = [found for name, schema in self.schemas.items() for found in schemas_within(schema, name)]
        return within + [
            found
            for operation in self.operations
            for parameter in operation["parameters"]
            for found in schemas_within(
                parameter["schema"], f"{operation['operationId']}.{parameter['name']}"
            )
        ]

    def properties(self, name: str) -> dict[str, Any]:
        return dict(self.schemas[name]["properties"])


@pytest.fixture(scope="module")
def document() -> Document:
    return Document()


def test_every_name_of_an_operation_or_schema_is_one_of_a_kind_even_where_case_is_lost(
    document: Document,
) -> None:
    operations = Counter(operation["operationId"].casefold() for operation in document.operations)
    schemas = Counter(name.casefold() for name in document.schemas)

    assert len(document.operations) == sum(len(list(declared.doors)) for declared in table().values())
    assert {name for name, count in operations.items() if count > 1} == set()
    assert {name for name, count in schemas.items() if count > 1} == set()
    assert [name for name in document.schemas if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name)] == []


def test_no_schema_has_a_title_since_generators_name_classes_by_them(document: Document) -> None:
    assert [at for at, schema in document.all() if "title" in schema] == []


def test_a_union_is_of_one_type_and_null(document: Document) -> None:
    unions = [(at, schema.get("anyOf", schema.get("oneOf"))) for at, schema in document.all()]

    wrong = [(at, of) for at, of in unions if of is not None and (len(of) != 2 or of.count(NULL) != 1)]

    assert wrong == []


def test_the_ways_to_prove_who_asks_are_declared_and_no_function_asks_for_another(document: Document) -> None:
    schemes = document.whole["components"]["securitySchemes"]

    assert schemes["token"]["scheme"] == "bearer"
    assert document.whole["security"] == [*({name: []} for name in schemes), {}]
    for name, declared in table().items():
        for operation in (of for of in document.operations if of["x-function"] == name):
            is_open = declared.is_public or ("anyone" in declared.roles and not declared.knows_caller)
            assert (operation.get("security") == []) == is_open, name


REQUESTS = {declared.request.__name__: declared.request for declared in table().values()}


def test_every_field_of_a_request_is_described_and_has_an_example_that_is_valid(document: Document) -> None:
    asked = [
        (name, field, schema)
        for name in (*REQUESTS, "Metric", "Sample")
        for field, schema in document.schemas[name].get("properties", {}).items()
    ]

    assert [(name, field) for name, field, schema in asked if not schema.get("description")] == []
    for name, field, schema in asked:
        referred = {"components": document.whole["components"]} if "$ref" in str(schema) else {}
        validator = jsonschema_rs.validator_for({**schema, **referred})
        assert schema.get("examples"), (name, field)
        assert all(validator.is_valid(example) for example in schema["examples"]), (name, field)


ONE_OF: dict[str, dict[str, Any]] = {
    "ChooseLetters": {"all": True},
}
"""Requests that must have one of several fields, with one of them."""


def test_the_examples_of_what_a_request_must_have_are_a_request(document: Document) -> None:
    for name, request in REQUESTS.items():
        schema = document.schemas[name]
        shown = {field: schema["properties"][field]["examples"][0] for field in schema.get("required", [])}
        shown |= ONE_OF.get(name, {})

        request.model_validate(shown, strict=True)


SAID = {"action", "duplicate_of", "hint", "next", "replayed", "should_abort", "trust"}
"""What an agent is told to go by."""


def test_what_an_agent_goes_by_is_described_in_every_answer(document: Document) -> None:
    told = [
        (name, field, of)
        for name, s in document.schemas.items()
        for field, of in s.get("properties", {}).items()
    ]

    assert [(name, field) for name, field, of in told if field in SAID and not of.get("description")] == []
    assert {field for _, field, _ in told} >= SAID


def test_the_page_for_people_describes_what_is_asked_and_what_is_answered(document: Document) -> None:
    page = docs_page(table())

    for said in (
        document.properties("RegisterExperiment")["parent_id"]["description"],
        document.properties("RegisteredExperiment")["duplicate_of"]["description"],
        document.properties("Crashed")["should_abort"]["description"],
    ):
        assert escape(said) in page
