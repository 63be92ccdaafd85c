"""Which optional parameters a server takes, learned from its refusals: pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent.errors import ContextTooLong
from agent.llm.failures import Failure

LimitName = Literal["max_tokens", "max_completion_tokens"]
Format = Literal["json_schema", "json_object", "none"]

_SCHEMA_NAME = "patch"  # servers want a name for the schema; nothing reads it back

_LESS_STRICT: Mapping[Format, Format] = {"json_schema": "json_object", "json_object": "none"}

_FORMAT = re.compile(
    r"response[_ ]format|json[_ ]?(schema|object|mode)|structured[_ ]output|grammar", re.IGNORECASE
)
_REFUSED = re.compile(
    r"unsupported|not (be )?(supported|permitted|allowed)|(does|is) ?n.t support|not support"
    r"|unrecogni[sz]ed|unknown|unexpected|extra|deprecated|instead",
    re.IGNORECASE,
)
# "This model supports at most 16384 completion tokens" (OpenAI), "max_tokens: 9000 > 8192, which is
# the maximum allowed number of output tokens" (Anthropic).
_OUTPUT_LIMIT = re.compile(
    r"at most (\d+) (?:completion|output)|max_tokens\D{0,5}\d+ > (\d+)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a request is written for one server. Starts with what most servers know."""

    limit_name: LimitName = "max_tokens"
    temperature: bool = True
    format: Format = "json_schema"
    output_limit: int | None = None  # of the model, once it has told

    def options(
        self, max_output_tokens: int, temperature: float, schema: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The optional fields of the request's body."""
        limit = min(max_output_tokens, self.output_limit or max_output_tokens)
        fields: dict[str, Any] = {self.limit_name: limit}
        if self.temperature:
            fields["temperature"] = temperature
        if schema is not None and self.format == "json_schema":
            wrapped = {"name": _SCHEMA_NAME, "schema": schema, "strict": is_strict(schema)}
            fields["response_format"] = {"type": "json_schema", "json_schema": wrapped}
        elif schema is not None and self.format == "json_object":
            fields["response_format"] = {"type": "json_object"}
        return fields

    def less_strict(self) -> Dialect:
        """Ask for the reply's format one step less strictly."""
        return replace(self, format=_LESS_STRICT.get(self.format, "none"))

    def adapted(self, failure: Failure, sent: Mapping[str, Any]) -> Dialect | None:
        """The dialect that avoids this refusal of the fields `sent`; None when none would."""
        if failure.status not in (400, 404, 422) or isinstance(failure.error, ContextTooLong):
            return None
        wording = failure.wording
        if "response_format" in sent and _FORMAT.search(wording):
            return self.less_strict()
        limit = output_limit(wording)
        if limit and limit < sent[self.limit_name]:
            return replace(self, output_limit=limit)
        if (
            self.limit_name == "max_tokens"
            and re.search(r"\bmax_(completion_)?tokens\b", wording)
            and _REFUSED.search(wording)
        ):
            return replace(self, limit_name="max_completion_tokens")
        if "temperature" in sent and "temperature" in wording.lower():
            return replace(self, temperature=False)
        return None


def is_strict(schema: Any) -> bool:
    """Whether a JSON Schema obeys OpenAI's rules for `strict`: closed objects, all required."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(schema.get("properties", {})):
            return False
    return all(is_strict(value) for value in schema.values())


def output_limit(wording: str) -> int | None:
    """The longest output that the model takes, in tokens, where a refusal says so."""
    found = _OUTPUT_LIMIT.search(wording)
    return int(found.group(1) or found.group(2)) if found else None
