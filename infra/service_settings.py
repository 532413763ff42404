"""Which services `floodmark up` keeps on this machine and where they listen: the section `[services]`."""

import dataclasses
from dataclasses import dataclass

LAST_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Addresses of the services.

    Attributes:
        host: The address of this machine that all of them listen at. Prefect, MLflow and the scorer ask
            nobody who he is: state another than loopback only where everybody in reach may do everything.
        prefect_port, mlflow_port, scorer_port, receiver_port: Of Prefect's and MLflow's server,
            `floodmark serve` and `floodmark listen`.
        metrics_port: That of `floodmark metrics --serve`, which is not kept where None.
    """

    host: str = "127.0.0.1"
    prefect_port: int = 4200
    mlflow_port: int = 5000
    scorer_port: int = 8000
    receiver_port: int = 8010
    metrics_port: int | None = None

    def __post_init__(self) -> None:
        if not self.host:
            raise ValueError("host is empty; 127.0.0.1 is this machine alone, 0.0.0.0 all of its addresses")
        ports: dict[int, str] = {}
        for field in dataclasses.fields(self):
            port = getattr(self, field.name)
            if field.name == "host" or port is None:
                continue
            if not 0 < port <= LAST_PORT:
                raise ValueError(f"{field.name} is {port}; it must lie between 1 and {LAST_PORT}")
            if port in ports:
                raise ValueError(f"{ports[port]} and {field.name} are both {port}; each needs its own")
            ports[port] = field.name

    def url(self, port: int) -> str:
        """Return the address at which programs on this machine reach a port."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)  # noqa: S104 - only compared
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
