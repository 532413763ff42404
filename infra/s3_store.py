"""Objects in an S3 bucket."""

import os
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore import exceptions as boto
from botocore.config import Config

from infra.object_store import Listing, ObjectNotFoundError, changed_error
from training.errors import ConfigurationError, FloodmarkError, RetryableError
from training.types import ObjectVersion

MAX_ATTEMPTS = 4
OBJECTS_PER_CALL = 1000
CONNECT_TIMEOUT_SECONDS = 5
READ_TIMEOUT_SECONDS = 60

_CREATE_TOKEN = "floodmark-create"  # noqa: S105 - a metadata key, not a password

_CREDENTIAL_HINT = (
    "Credentials come from boto3's own chain: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and "
    "AWS_SESSION_TOKEN for temporary ones) or AWS_PROFILE, and allow s3:ListBucket, s3:GetObject and "
    "s3:PutObject on the bucket."
)
_CREDENTIAL_CODES = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
CREDENTIAL_ERRORS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.ProfileNotFound,
    boto.TokenRetrievalError,
    boto.UnauthorizedSSOTokenError,
)
_PASSING_ERRORS = (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError)
_PASSING_STATUS = {408, 409, 429}
_PASSING_CODES = {"SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "RequestLimitExceeded"}
_NOT_IMPLEMENTED = 501
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Where S3 is; None leaves it to AWS and its standard variables (AWS_ENDPOINT_URL, AWS_REGION ...)."""

    endpoint_url: str | None = None
    region: str | None = None

    def __post_init__(self) -> None:
        if self.endpoint_url is not None:
            parts = urlsplit(self.endpoint_url)
            if (
                parts.scheme not in {"http", "https"}
                or not parts.hostname
                or parts.username
                or parts.password
            ):
                raise ConfigurationError(
                    "The S3 endpoint is not a plain http:// or https:// address.",
                    hint="Allowed: for example https://minio.example.org:9000, without user and password.",
                )


@lru_cache
def s3_client(settings: S3Settings) -> Any:  # noqa: ANN401 - boto3 makes its clients at run time
    """Return the boto3 client for these settings, made on first use and then shared (it is thread-safe).

    Checksums only where S3 requires them: many S3-compatible servers refuse the newer defaults.
    """
    variables = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    endpoint = settings.endpoint_url or next(filter(None, map(os.environ.get, variables)), None)
    config = Config(
        retries={"mode": "standard", "total_max_attempts": MAX_ATTEMPTS},
        connect_timeout=CONNECT_TIMEOUT_SECONDS,
        read_timeout=READ_TIMEOUT_SECONDS,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if endpoint else "auto"},
    )
    try:  # a session of its own, because boto3's default one is not thread-safe
        return boto3.session.Session().client(
            "s3", endpoint_url=endpoint, region_name=settings.region, config=config
        )
    except ValueError as error:
        raise ConfigurationError(
            "The S3 endpoint or region is not valid.",
            hint="Check AWS_ENDPOINT_URL (http://host:port) and AWS_REGION.",
        ) from error


@dataclass(frozen=True, slots=True)
class S3Store:
    """Objects under a prefix of an S3 bucket, on AWS or a server that speaks its protocol.

    Source: Amazon S3 User Guide, conditional writes: 412 means that the key is taken, 409 that another
    request was in flight and the upload is to be repeated.
    """

    bucket: str
    prefix: str
    settings: S3Settings

    @property
    def url(self) -> str:
        """The address as `s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def objects_per_call(self) -> int:
        """The protocol's limit."""
        return OBJECTS_PER_CALL

    def list(self, prefix: str = "", *, after: str = "") -> Listing:
        """See `ObjectStore.list`; markers of empty folders are no objects."""
        root = self._key("")
        folder = f"{self._key(prefix.strip('/'))}/" if prefix.strip("/") else root
        start = {"StartAfter": self._key(after)} if after else {}
        with self._errors("list", prefix):
            pages = s3_client(self.settings).get_paginator("list_objects_v2")
            found = [
                self._as_listed(item, page)
                for page in pages.paginate(Bucket=self.bucket, Prefix=folder, **start)
                for item in page.get("Contents", ())
                if not item["Key"].endswith("/")
            ]
        return sorted(found, key=lambda item: item.key)

    def find(self, key: str) -> ObjectVersion:
        """See `ObjectStore.find`."""
        with self._errors("find", key):
            answer = s3_client(self.settings).list_objects_v2(
                Bucket=self.bucket, Prefix=self._key(key), MaxKeys=1
            )
        for item in answer.get("Contents", ()):
            if item["Key"] == self._key(key):
                return self._as_listed(item, answer)
        raise ObjectNotFoundError(f"{self.url} holds no object {key}.")

    def read(self, key: str, *, version: str | None = None) -> bytes:
        """See `ObjectStore.read`: one request is answered from one version of the object."""
        condition = {"IfMatch": f'"{version}"'} if version is not None else {}
        with self._errors("read", key):
            answer = s3_client(self.settings).get_object(Bucket=self.bucket, Key=self._key(key), **condition)
            data: bytes = answer["Body"].read()
        if version is not None and answer["ETag"].strip('"') != version:  # a server that ignores conditions
            raise changed_error(self.url, key)
        return data

    def write(self, key: str, data: bytes) -> None:
        """See `ObjectStore.write`."""
        with self._errors("write", key):
            s3_client(self.settings).put_object(Bucket=self.bucket, Key=self._key(key), Body=data)

    def create(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.create`.

        An answer that was lost makes boto3 ask again, and the second answer is then 412 although the
        first request won: a token in the object's metadata tells whose object it is.
        """
        token = uuid.uuid4().hex
        place = {"Bucket": self.bucket, "Key": self._key(key)}
        with self._errors("create", key):
            client = s3_client(self.settings)
            for attempt in range(MAX_ATTEMPTS):
                time.sleep(0.1 * attempt)
                try:
                    client.put_object(**place, Body=data, IfNoneMatch="*", Metadata={_CREATE_TOKEN: token})
                except boto.ClientError as error:
                    code, retried = code_of(error)[0], error.response["ResponseMetadata"].get("RetryAttempts")
                    if code == "PreconditionFailed":
                        return bool(attempt or retried) and self._token(place) == token
                    if code != "ConditionalRequestConflict":
                        raise
                else:
                    return True
        raise RetryableError(
            f"Could not create {key} in {self.url}: others keep writing it.",
            hint="Run the same command again.",
        )

    def _token(self, place: dict[str, str]) -> str | None:
        found: dict[str, str] = s3_client(self.settings).head_object(**place)["Metadata"]
        return found.get(_CREATE_TOKEN)

    def _as_listed(self, item: dict[str, Any], answer: dict[str, Any]) -> ObjectVersion:
        return ObjectVersion(
            key=item["Key"].removeprefix(self._key("")),
            size=item["Size"],
            version=item["ETag"].strip('"'),
            modified=item["LastModified"].timestamp() + _clock_ahead(answer),
        )

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    @contextmanager
    def _errors(self, verb: str, key: str) -> Generator[None]:
        """Say what boto3's errors mean for the caller; their texts may hold addresses and are left out."""
        what = f"Could not {verb} {key or 'the objects'} in {self.url}"
        try:
            yield
        except boto.ClientError as error:
            raise self._refusal(what, key, *code_of(error)) from error
        except CREDENTIAL_ERRORS as error:
            raise ConfigurationError(
                f"{what}: no usable credentials ({type(error).__name__}).", hint=_CREDENTIAL_HINT
            ) from error
        except _PASSING_ERRORS as error:
            raise RetryableError(
                f"{what}: no answer ({type(error).__name__}).",
                hint="Check AWS_ENDPOINT_URL and the network, then run the same command again.",
            ) from error
        except boto.BotoCoreError as error:
            raise ConfigurationError(
                f"{what}: the request is not valid ({type(error).__name__}).",
                hint="Check the bucket's name, AWS_ENDPOINT_URL and AWS_REGION.",
            ) from error

    def _refusal(self, what: str, key: str, code: str, status: int) -> FloodmarkError:
        """Return the error that an answer of the server means."""
        what = f"{what}: the server answered {code} ({status})."
        if code == "PreconditionFailed":
            return changed_error(self.url, key)
        if code == "NoSuchKey":
            return ObjectNotFoundError(f"{self.url} holds no object {key}.")
        if code == "NoSuchBucket":
            return ConfigurationError(
                f"The bucket {self.bucket} does not exist.",
                hint="Create it, or correct the name in s3://bucket/prefix or AWS_ENDPOINT_URL.",
            )
        if status == _NOT_IMPLEMENTED:
            return ConfigurationError(
                what, hint="Use a store that supports conditional writes (If-None-Match)."
            )
        if status >= _SERVER_ERROR or status in _PASSING_STATUS or code in _PASSING_CODES:
            return RetryableError(what, hint="Run the same command again later.")
        denied = status in {401, 403} or code in _CREDENTIAL_CODES
        return ConfigurationError(
            what, hint=_CREDENTIAL_HINT if denied else "Check the address, AWS_ENDPOINT_URL and AWS_REGION."
        )


def _clock_ahead(answer: dict[str, Any]) -> float:
    """Return by how many seconds this machine's clock is ahead of the server that just answered."""
    said = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return time.time() - parsedate_to_datetime(said).timestamp() if said else 0.0


def code_of(error: boto.ClientError) -> tuple[str, int]:
    """Return a server's error code and HTTP status."""
    response = error.response
    return (
        str(response.get("Error", {}).get("Code", "")),
        int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)),
    )
