"""A scenario: the one input of every command. Validated, immutable, with exact decimal sizes.

`Scenario` and its parts are pydantic models, so each key has its description here and nowhere else; the reference
page is made from them. Checks that need more than one key live in `checks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from slotwise.model.labels import Labels, Requirements
from slotwise.model.laws import ArrivalLaw, Exponential, Poisson, ServiceLaw
from slotwise.model.part import Name, NonNegative, Part, Positive, Size
from slotwise.model.quotas import Quota
from slotwise.model.rateprofile import RateProfile
from slotwise.model.shares import Priority, Shares
from slotwise.model.units import SECONDS, TimeUnit

MOST_SERVERS = 10_000_000  # of a class: arrays of this length still fit into memory
MOST_EVENTS = 10**12  # of a run: about a day of computing
MOST_RUNS = 10_000


class Failures(Part):
    """Servers of a class fail and are repaired, each on its own, after exponential times."""

    mean_time_between: Positive = Field(description="mean time from repair to failure of one server")
    mean_repair: Positive = Field(description="mean time from failure to repair")


class ServerClass(Part):
    """Servers that are alike."""

    name: Name = Field(description="what the class is called")
    count: int = Field(ge=0, le=MOST_SERVERS, description="how many servers of this class there are")
    capacity: tuple[Size, ...] = Field(description="how much of each resource one server has, in their order")
    labels: Labels = Field({}, description='what job types may require, such as `{ gpu = "a100", zone = "b" }`')
    price: NonNegative | None = Field(None, description="cost of one server, for `slotwise plan`")
    failures: Failures | None = Field(None, description="random failures and repairs")
    feasible: Callable[[tuple[int, ...]], bool] | None = Field(
        None,
        exclude=True,
        description="from Python only: any monotone predicate on configurations, instead of adding up demands",
    )


class ServerEvent(Part):
    """Something that happens to servers of a class at a known time."""

    at: NonNegative = Field(description="when")
    action: Literal["join", "drain", "fail"] = Field(description="join, drain (finish, then leave) or fail")
    servers: Name = Field(description="name of the server class")
    count: int = Field(1, ge=1, le=MOST_SERVERS, description="how many servers of the class")


class Cluster(Part):
    """The machines."""

    resources: tuple[Name, ...] = Field(min_length=1, description="names of the resources, in order")
    units: dict[Name, Name] = Field({}, description='what resources are counted in, such as `{ memory = "GB" }`')
    servers: tuple[ServerClass, ...] = Field(min_length=1, description="the server classes")
    events: tuple[ServerEvent, ...] = Field((), description="joins, drains and failures at known times")

    @property
    def n_servers(self) -> int:
        """L, the servers that are there from the start."""
        return sum(server.count for server in self.servers)


class JobType(Part):
    """Jobs that ask for the same and wait in one queue."""

    name: Name = Field(description="what the type is called")
    demand: tuple[Size, ...] = Field(description="how much of each resource one job takes, in their order")
    rate: NonNegative | None = Field(
        None, description="arrivals per unit time, whole cluster; relative where workload.intensity is given"
    )
    mean_service: Positive = Field(1.0, description="mean service time")
    requires: Requirements = Field(
        {},
        description="labels that a server must have, each with the value or the list of values that will do, such as"
        ' `{ gpu = ["a100", "h100"] }`',
    )
    tenant: Name | None = Field(None, description="whose jobs these are, where there are shares")
    priority: Priority = Field(
        1.0, description="where there are shares: a factor of the weight among the types of the tenant"
    )
    profile: RateProfile | None = Field(
        None, description="how this type's rate changes over time, where it differs"
    )
    arrivals: ArrivalLaw | None = Field(None, description="arrival law of this type, where it differs")
    service: ServiceLaw | None = Field(None, description="service law of this type, where it differs")


class TypeMaking(Part):
    """How the jobs of a trace are sorted into queue types."""

    method: Literal["power-of-two", "grid", "exact", "waste-bounded"] = "waste-bounded"
    types: int | None = Field(
        None,
        ge=1,
        description="waste-bounded: at most this many types, instead of as many as `waste` asks for; grid: levels per resource (8)",
    )
    waste: NonNegative = Field(
        0.05,
        description="waste-bounded: the fewest types, at most 64, that add at most this share to what jobs ask for",
    )
    too_large: Literal["refuse", "drop", "cap"] = Field(
        "refuse", description="jobs that fit no server: refuse the trace, leave them out, or cut them down"
    )


class Workload(Part):
    """What arrives."""

    trace: str | None = Field(None, description="a trace file (Parquet), instead of rates and laws")
    typing: TypeMaking = Field(TypeMaking(), description="trace only: from demands to queue types")
    start: Literal["empty", "warm"] = Field(
        "empty", description="trace only: begin with no job, or with those that would be running by then"
    )
    time_scale: Positive = Field(
        1.0, description="trace only: seconds of the trace per unit of time, where there is no time_unit"
    )
    intensity: Positive | None = Field(
        None, description="scale all rates so that the load is on the boundary of this share of the capacity region"
    )
    profile: RateProfile | None = Field(
        None, description='how rates change over time, such as `{ period = "day", rates = [0.5, 1.5, 1] }`'
    )
    arrivals: ArrivalLaw = Field(Poisson(), description="arrival law of every type")
    service: ServiceLaw = Field(Exponential(), description="service law of every type")


class PolicyChoice(BaseModel):
    """The policy and its parameters: any key that the policy knows."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: Name = Field("guarded", description="a policy of `slotwise policies`, or file.py:Name for your own")

    @property
    def options(self) -> dict[str, Any]:
        """The parameters beside the name."""
        return dict(self.model_extra or {})


class Run(Part):
    """How long, how often, from which seed."""

    events: int | None = Field(
        None, ge=1, le=MOST_EVENTS, description="stop after so many arrivals and completions"
    )
    jobs: int | None = Field(None, ge=1, le=MOST_EVENTS, description="stop after so many arrivals")
    until: Positive | None = Field(None, description="stop at this time")
    warmup: Annotated[float, Field(ge=0, lt=1)] | Literal["auto"] = Field(
        0.25, description='share of the run that is dropped first, or "auto" (MSER-5)'
    )
    replications: int = Field(
        5,
        ge=1,
        le=MOST_RUNS,
        description="independent runs; to begin with, where no length is given: then as many as `precision` takes",
    )
    precision: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.1, description="where no length is given: run until the mean queue is known to this share of it"
    )
    seed: int = Field(1, ge=0, description="the same seed gives the same figures, to the last bit")


class Scenario(Part):
    """Cluster, types, workload, policy and run."""

    name: str = Field("scenario", description="shown in results; the file's name by default")
    time_unit: TimeUnit | None = Field(None, description="the unit of every time and rate; shown with the figures")
    cluster: Cluster
    types: tuple[JobType, ...] = Field((), description="the job types (not needed with a trace)")
    workload: Workload = Field(Workload())
    shares: Shares | None = Field(None, description="fair shares among tenants")
    quotas: tuple[Quota, ...] = Field((), description="how much of a tenant `slotwise serve` admits; not simulated")
    policy: PolicyChoice = Field(PolicyChoice(name="guarded"))
    run: Run = Field(Run())

    @property
    def units(self) -> dict[str, Any]:
        """The units of its figures, for JSON; nothing where none are given."""
        found = {"time_unit": self.time_unit, "units": dict(self.cluster.units)}
        return {key: value for key, value in found.items() if value}

    @property
    def period(self) -> float | None:
        """The time after which all rates are the same again; None where none of them changes."""
        profiles = [self.workload.profile, *(job_type.profile for job_type in self.types)]
        return max((one.span(self.time_unit) for one in profiles if one is not None), default=None)

    @property
    def seconds(self) -> float:
        """Of a trace's time in one unit of the scenario's time."""
        return SECONDS[self.time_unit] if self.time_unit else self.workload.time_scale

    def model_post_init(self, _context: Any) -> None:
        from slotwise.model.checks import check  # it needs the classes of this module

        check(self)
