"""What the HTTP scorer says and is told, as its OpenAPI page shows it."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from infra.score_request import ARROW_STREAM, JSON, PARQUET
from training.types import ColumnKind

Cell = Annotated[float | str | bool | None, Field(description="null where the value is missing")]


class RowsRequest(BaseModel):
    """Rows as objects; every feature in each of them, other columns are ignored."""

    rows: list[dict[str, Cell]] = Field(min_length=1, examples=[[{"pressure": 201.5, "pump": "north"}]])


class ColumnsRequest(BaseModel):
    """The same by column, which is quicker for many rows; lists of one length."""

    columns: dict[str, list[Cell]] = Field(examples=[{"pressure": [201.5, None], "pump": ["north", "south"]}])


class Scores(BaseModel):
    """Scores in the order of the rows, and the version and flood mark that they belong to."""

    model: str
    model_version: str
    threshold: float
    anomaly_score: list[float]
    is_anomaly: list[bool] = Field(description="anomaly_score > threshold")


class Problem(BaseModel):
    """What is wrong, with the value received, and what is allowed."""

    error: str
    hint: str


class Readiness(BaseModel):
    """Whether scores are given, and whether they are those of the version that the alias names."""

    ready: bool
    model: str
    model_version: str | None
    since: datetime | None = Field(description="when this version began to serve here")
    following: bool
    reason: str | None = Field(description="why the alias is not followed")
    confirmed_seconds_ago: float | None = Field(description="since the alias last named this version")


class Feature(BaseModel):
    """A column that requests must have."""

    name: str
    kind: ColumnKind


class ServedModel(BaseModel):
    """The version that serves."""

    model: str
    model_version: str
    since: datetime
    detector: str
    threshold: float
    threshold_method: str
    target_alert_rate: float
    features: list[Feature]
    sequence_columns: list[str] = Field(
        description="columns that requests must have too: their rows are read as sequences in time"
    )


BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {"anyOf": [RowsRequest.model_json_schema(), ColumnsRequest.model_json_schema()]}
            },
            PARQUET: {"schema": {"type": "string", "format": "binary"}},
            ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}
"""The body of a request for scores: read by `score_request`, which is much quicker than by these models."""
