"""Every mistake in a scenario has a message of its own that says where it is and what would be right."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from slotwise.errors import InputError
from slotwise.model import load_scenario, parse_scenario

pytestmark = pytest.mark.core

CLUSTER = """
[cluster]
resources = ["cpu", "memory"]
servers = [{ name = "std", count = 2, capacity = [4, 8] }]
"""
TYPE = """
[[types]]
name = "web"
demand = [1, 2]
rate = 3
"""
GOOD = CLUSTER + TYPE
LAWS = "poisson, lognormal, deterministic, hyperexponential, mmpp, batch"
SERVICES = "exponential, hyperexponential, lognormal, weibull, pareto, deterministic, empirical"
TRACE = CLUSTER + '[workload]\ntrace = "jobs.parquet"\n'


def arrivals(law: str) -> str:
    return GOOD + f"[workload]\narrivals = {law}"


def service(law: str) -> str:
    return GOOD + f"[workload]\nservice = {law}"


def batches(rows: str, rate: str = "1") -> str:
    types = TYPE.replace("rate = 3", "")
    return CLUSTER + types + f'[workload]\narrivals = {{ law = "batch", rate = {rate}, batches = [{rows}] }}'


def run(line: str) -> str:
    return GOOD + f"[run]\n{line}"


def event(text: str) -> str:
    return GOOD.replace("[[types]]", f"events = [{text}]\n[[types]]")


def with_(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def shares(text: str) -> str:
    return GOOD + f"[shares]\nhalf_life = 10\n{text}"


MISTAKES: list[tuple[str, str]] = [
    # shares
    (GOOD + "[shares]\ntenants = []", "shares.half_life: is missing; add half_life = ..."),
    (shares("half_lif = 3"), "shares.half_lif: unknown key; did you mean half_life?"),
    (
        shares('tenants = [{ name = "a" }, { name = "a" }]'),
        "shares.tenants: 'a' is listed twice; list each once",
    ),
    (
        shares('tenants = [{ name = "others" }]'),
        "shares.tenants (others): 'others' are all tenants that are not listed; write shares.others",
    ),
    (
        shares('tenants = [{ name = "a", group = "sience" }]\ngroups = [{ name = "science" }]'),
        "shares.tenants (a): no group is called 'sience'; did you mean science?",
    ),
    (
        shares('tenants = [{ name = "a", group = "g" }]'),
        "shares.tenants (a): no group is called 'g'; add [[shares.groups]] with this name",
    ),
    (
        shares('tenants = [{ name = "a" }]\ngroups = [{ name = "g" }]'),
        "shares.groups: group 'g' has no tenant; give a tenant group = \"g\"",
    ),
    (shares('tenants = [{ name = "a", share = 0 }]'), "shares.tenants[0].share: is 0; must be above 0"),
    (with_("rate = 3", "rate = 3\npriority = 99"), "types[0].priority: is 99; must be at most 16"),
    # keys
    (
        with_("[cluster]", "[clutser]"),
        "clutser: unknown key; did you mean cluster? (and 1 more mistake in this scenario)",
    ),
    (with_("rate = 3", "rte = 3"), "types[0].rte: unknown key; did you mean rate?"),
    (
        with_("rate = 3", "rate = 3\ncolour = 'red'"),
        "types[0].colour: unknown key; the keys here are: name, demand, rate",
    ),
    (with_("count = 2", "count = 2, cuont = 3"), "cluster.servers[0].cuont: unknown key; did you mean count?"),
    (run("evnts = 3"), "run.evnts: unknown key; did you mean events?"),
    (GOOD + "[workload]\nservce = 1", "workload.servce: unknown key; did you mean service?"),
    (arrivals('{ law = "lognormal", sgima = 1 }'), "workload.arrivals.sgima: unknown key; did you mean sigma?"),
    (arrivals('{ law = "poisson", sigma = 1 }'), "workload.arrivals.sigma: unknown key; the keys here are: law"),
    (GOOD + 'service = { law = "weibull", shap = 1 }', "types[0].service.shap: unknown key; did you mean shape?"),
    (batches("{ probability = 1, job = { web = 1 } }"), "batches[0].job: unknown key; did you mean jobs?"),
    (TYPE, "cluster: is missing; add [cluster]"),
    (with_('name = "web"\n', ""), "types[0].name: is missing; add name = ..."),
    (with_("count = 2, ", ""), "cluster.servers[0].count: is missing; add count = ..."),
    (with_(", capacity = [4, 8]", ""), "cluster.servers[0].capacity: is missing; add capacity = ..."),
    (with_("demand = [1, 2]\n", ""), "types[0].demand: is missing; add demand = ..."),
    # kinds of values
    (with_("demand = [1, 2]", "demand = 1"), "types[0].demand: is 1; must be a list in [ ]"),
    (with_("demand = [1, 2]", 'demand = ["many", 2]'), "types[0].demand[0]: is 'many'; must be a number"),
    (with_("demand = [1, 2]", "demand = [true, 2]"), "types[0].demand[0]: is true; must be a number"),
    (with_("count = 2", 'count = "two"'), "cluster.servers[0].count: is 'two'; must be a whole number"),
    (with_("count = 2", "count = 1.5"), "cluster.servers[0].count: is 1.5; must be a whole number"),
    (with_('name = "web"', "name = 3"), "types[0].name: is 3; must be a text in quotes"),
    (with_('name = "web"', 'name = ""'), "types[0].name: is empty; write at least one character"),
    (with_("[[types]]", "[types]"), "types: is a table; must be a list in [ ]"),
    (
        with_('servers = [{ name = "std", count = 2, capacity = [4, 8] }]', "servers = 3"),
        "cluster.servers: is 3; must be a list",
    ),
    ('policy = "m14"\n' + GOOD, "policy: is 'm14'; must be a table"),
    ("run = [1]\n" + GOOD, "run: is a list; must be a table"),
    (with_("rate = 3", "rate = 'fast'"), "types[0].rate: is 'fast'; must be a number"),
    (GOOD + "[policy]\nname = 1", "policy.name: is 1; must be a text in quotes"),
    (
        with_("count = 2", "count = 2, feasible = 'f'"),
        "feasible: is 'f'; must be a function, which only Python can give",
    ),
    # sizes
    (with_("[1, 2]", "[-1, 2]"), "types[0].demand[0]: is -1; must be at least 0"),
    (with_("[4, 8]", "[4, -0.5]"), "cluster.servers[0].capacity[1]: is -0.5; must be at least 0"),
    (with_("[1, 2]", "[nan, 2]"), "types[0].demand[0]: is nan; must be a finite number"),
    (with_("[4, 8]", "[inf, 8]"), "cluster.servers[0].capacity[0]: is inf; must be a finite number"),
    (
        with_("[1, 2]", "[0.1234567890123456789012345, 2]"),
        "types[0].demand[0]: has too many digits to be kept exactly",
    ),
    (
        with_("[4, 8]", "[4, 8e20]"),
        "cluster.servers[0]: 8E+20 with 0 digits behind the point is too large to be kept",
    ),
    (
        with_("[1, 2]", "[1, 0.00000000000000001]"),
        "too large to be kept exactly; use a larger unit (GB for bytes) or fewer",
    ),
    (
        with_("[4, 8]", "[4]"),
        "cluster.servers[0] (std).capacity: has 1 size for 2 resources; give one size for each of: cpu",
    ),
    (
        with_("[1, 2]", "[1, 2, 3]"),
        "types[0] (web).demand: has 3 sizes for 2 resources; give one size for each of: cpu",
    ),
    (with_("[4, 8]", "[0, 0]"), "cluster.servers[0] (std).capacity: a server without any capacity; give it some"),
    (
        with_("[1, 2]", "[0, 0]"),
        "types[0] (web).demand: demands nothing, so any number would fit; give at least one size",
    ),
    (
        with_("[1, 2]", "[1, 9]"),
        "types[0] (web).demand: fits no server: it asks for 9 of memory, the largest server has 8; lower it, or add a larger",
    ),
    (
        GOOD.replace("[1, 2]", "[3, 6]")
        .replace("{ name", '{ name = "m", count = 1, capacity = [2, 8] }, { name')
        .replace('"std", count = 2, capacity = [4, 8]', '"c", count = 1, capacity = [4, 4]'),
        "types[0] (web).demand: fits no server: each resource fits some server, but no server has enough of all",
    ),
    # names and numbers of things
    (
        with_('["cpu", "memory"]', '["cpu", "cpu"]'),
        "cluster.resources[1]: two are called 'cpu'; give each resource its own",
    ),
    (with_('["cpu", "memory"]', "[]"), "cluster.resources: is empty; give at least one"),
    (
        with_('[{ name = "std", count = 2, capacity = [4, 8] }]', "[]"),
        "cluster.servers: is empty; give at least one",
    ),
    (
        with_("[4, 8] }", '[4, 8] }, { name = "std", count = 1, capacity = [1, 1] }'),
        "cluster.servers[1]: two are called 'std'; give each server class its own name",
    ),
    (GOOD + TYPE, "types[1]: two are called 'web'; give each type its own name"),
    (with_("count = 2", "count = 0"), "cluster.servers: there are no servers; give a class a count of 1 or more"),
    (with_("count = 2", "count = -1"), "cluster.servers[0].count: is -1; must be at least 0"),
    (CLUSTER, "types: there are no job types; add a [[types]] table, or give workload.trace"),
    (with_("count = 2", "count = 2, price = -1"), "cluster.servers[0].price: is -1; must be at least 0"),
    (
        with_("count = 2", "count = 2, failures = { mean_time_between = 0, mean_repair = 1 }"),
        "cluster.servers[0].failures.mean_time_between: is 0; must be above 0",
    ),
    (
        with_("count = 2", "count = 2, failures = { mean_time_between = 5 }"),
        "cluster.servers[0].failures.mean_repair: is missing; add mean_repair = ...",
    ),
    # events
    (event("{ at = -1, action = 'join', servers = 'std' }"), "cluster.events[0].at: is -1; must be at least 0"),
    (
        event("{ at = 1, action = 'burn', servers = 'std' }"),
        "action: is 'burn'; use one of: 'join', 'drain' or 'fail'",
    ),
    (
        event("{ at = 1, action = 'join', servers = 'x' }"),
        "events[0].servers: no server class is called 'x'; use one of: std",
    ),
    (
        event("{ at = 1, action = 'join', servers = 'std', count = 0 }"),
        "cluster.events[0].count: is 0; must be at least 1",
    ),
    (
        event(
            "{ at = 2, action = 'fail', servers = 'std', count = 2 }, { at = 1, action = 'drain', servers = 'std' }"
        ),
        "cluster.events[0].count: 2 servers of 'std' leave at 2, but there are 1; lower it",
    ),
    # rates and times
    (with_("rate = 3", "rate = inf"), "types[0].rate: is inf; must be a finite number"),
    (with_("rate = 3", "rate = nan"), "types[0].rate: is nan; must be a finite number"),
    (with_("rate = 3", "rate = -3"), "types[0].rate: is -3; must be at least 0"),
    (with_("rate = 3", "rate = 0"), "types: all rates are 0, so nothing arrives; give some type a rate"),
    (with_("rate = 3", ""), "types[0] (web).rate: has no rate; give arrivals per unit time for the whole cluster"),
    (with_("rate = 3", "rate = 3\nmean_service = 0"), "types[0].mean_service: is 0; must be above 0"),
    (
        with_("rate = 3", "rate = -3\nmean_service = 0"),
        "rate: is -3; must be at least 0 (and 1 more mistake in this scenario)",
    ),
    (GOOD + "[workload]\nintensity = 0", "workload.intensity: is 0; must be above 0"),
    # laws
    (arrivals('{ law = "possion" }'), f"workload.arrivals: unknown law 'possion'; use one of: {LAWS}"),
    (arrivals('{ law = "weibull", shape = 1 }'), f"workload.arrivals: unknown law 'weibull'; use one of: {LAWS}"),
    (arrivals("{ sigma = 1 }"), 'workload.arrivals: has no law; write { law = "..." } with the name of one'),
    (arrivals('"poisson"'), "workload.arrivals: is 'poisson'; write { law = \"poisson\" }"),
    (arrivals('{ law = "lognormal", sigma = 0 }'), "workload.arrivals.sigma: is 0; must be above 0"),
    (service('{ law = "poisson" }'), f"workload.service: unknown law 'poisson'; use one of: {SERVICES}"),
    (service('{ law = "weibull" }'), "workload.service.shape: is missing; add shape = ..."),
    (service('{ law = "pareto", shape = 1 }'), "workload.service.shape: is 1; must be above 1"),
    (service('{ law = "empirical", values = [] }'), "workload.service.values: is empty; give at least one"),
    (service('{ law = "empirical", values = [1, -2] }'), "workload.service.values[1]: is -2; must be above 0"),
    (
        GOOD + 'service = { law = "lognormal", sigma = inf }',
        "types[0].service.sigma: is inf; must be a finite number",
    ),
    (
        service('{ law = "hyperexponential" }'),
        "workload.service: needs one way to say its shape; give either scv, or",
    ),
    (
        service('{ law = "hyperexponential", scv = 2, means = [1] }'),
        "needs one way to say its shape; give either scv",
    ),
    (service('{ law = "hyperexponential", scv = 0.5 }'), "workload.service.scv: is 0.5; must be at least 1"),
    (service('{ law = "hyperexponential", means = [1] }'), "has only one of probabilities and means; give both"),
    (
        service('{ law = "hyperexponential", probabilities = [0.5, 0.5], means = [1] }'),
        "workload.service: has 1 means for 2 probabilities; give one for each",
    ),
    (
        service('{ law = "hyperexponential", probabilities = [0.5, 0.4], means = [1, 2] }'),
        "workload.service: the probabilities add up to 0.9; make them add up to 1",
    ),
    (
        arrivals('{ law = "mmpp", rates = [1, 2], sojourns = [1, 1, 1] }'),
        "has 3 sojourns for 2 rates; give one for each",
    ),
    (
        arrivals('{ law = "mmpp", rates = [1], sojourns = [1, 2] }'),
        "workload.arrivals.rates: has 1; give at least 2",
    ),
    (
        arrivals('{ law = "mmpp", rates = [0, 0], sojourns = [1, 1] }'),
        "all rates are 0, so nothing arrives; give at least one",
    ),
    # batches
    (
        batches("{ probability = 0.9, jobs = { web = 1 } }"),
        "the probabilities of the batches add up to 0.9; make them",
    ),
    (
        batches("{ probability = 1, jobs = { wbe = 1 } }"),
        "batches[0].jobs: no type is called 'wbe'; use one of: web",
    ),
    (
        batches("{ probability = 1, jobs = { web = 0 } }"),
        "workload.arrivals.batches: every batch is empty, so nothing arrives",
    ),
    (
        batches("{ probability = 1, jobs = { web = -1 } }"),
        "workload.arrivals.batches[0].jobs.web: is -1; must be at least 0",
    ),
    (batches("{ probability = 1, jobs = {} }"), "workload.arrivals.batches[0].jobs: is empty; give at least one"),
    (batches(""), "workload.arrivals.batches: is empty; give at least one"),
    (batches("{ probability = 1, jobs = { web = 1 } }", "0"), "workload.arrivals.rate: is 0; must be above 0"),
    (
        arrivals('{ law = "batch", rate = 1, batches = [{ probability = 1, jobs = { web = 1 } }] }'),
        "types[0] (web).rate: a rate beside batch arrivals; remove it: the batches say how many jobs arrive",
    ),
    (
        GOOD + 'arrivals = { law = "batch", rate = 1, batches = [{ probability = 1, jobs = { web = 1 } }] }',
        "types[0] (web).arrivals: batches bring several types, so they cannot belong to one; move the law to workload",
    ),
    # traces
    (TRACE + TYPE, "types: types beside a trace; remove them: workload.typing makes types from the trace"),
    (
        TRACE + "intensity = 0.9",
        "workload.intensity: a trace has its own load, so it cannot be scaled to an intensity; remove",
    ),
    (
        TRACE + 'arrivals = { law = "lognormal" }',
        "workload.arrivals: a law beside a trace; remove it: the trace says when",
    ),
    (
        TRACE + "typing = { method = 'powers' }",
        "workload.typing.method: is 'powers'; use one of: 'power-of-two', 'grid'",
    ),
    (TRACE + "typing = { types = 0 }", "workload.typing.types: is 0; must be at least 1"),
    (TRACE + "time_scale = 0", "workload.time_scale: is 0; must be above 0"),
    (TRACE + "[run]\njobs = 3\nuntil = 5", "run: jobs and until are both given; keep one of events, jobs, until"),
    (
        GOOD + "[workload]\ntime_scale = 60",
        "workload.time_scale: is for traces only; remove it, or give workload.trace",
    ),
    (GOOD + "[workload]\ntrace = 5", "workload.trace: is 5; must be a text in quotes"),
    # runs
    (run("events = 5\nuntil = 3"), "run: events and until are both given; keep one of events, jobs, until"),
    (run("events = 0"), "run.events: is 0; must be at least 1"),
    (run("events = 'many'"), "run.events: is 'many'; must be a whole number"),
    (run("until = inf"), "run.until: is inf; must be a finite number"),
    (run("warmup = 1"), "run.warmup: is 1; must be below 1, or 'auto'"),
    (run("warmup = -0.1"), "run.warmup: is -0.1; must be at least 0, or 'auto'"),
    (run("warmup = 'atuo'"), "run.warmup: is 'atuo'; must be a number, or 'auto'"),
    (run("replications = 0"), "run.replications: is 0; must be at least 1"),
    (run("seed = -1"), "run.seed: is -1; must be at least 0"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[message[:50] for _, message in MISTAKES])
def test_each_mistake_is_named_with_its_place_and_remedy(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_scenario(tomllib.loads(text, parse_float=Decimal), where="jobs.toml")
    assert str(caught.value).startswith("jobs.toml: ")
    assert message in str(caught.value)
    assert caught.value.what
    assert caught.value.where != "jobs.toml"
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_the_scenario_that_the_mistakes_are_made_in_is_right() -> None:
    assert parse_scenario(tomllib.loads(GOOD, parse_float=Decimal)).cluster.n_servers == 2
    assert parse_scenario(tomllib.loads(TRACE, parse_float=Decimal)).workload.trace == "jobs.parquet"
    parse_scenario(tomllib.loads(batches("{ probability = 1, jobs = { web = 1 } }"), parse_float=Decimal))


# -- files and settings -----------------------------------------------------------------------------------------------


def test_files_that_are_not_scenarios(tmp_path: Path) -> None:
    def message(source: str | Path) -> str:
        with pytest.raises(InputError) as caught:
            load_scenario(source)
        return str(caught.value)

    assert message("tabel1") == (
        "tabel1: no such file or shipped scenario; did you mean table1? `slotwise scenarios` lists what there is"
    )
    assert message(tmp_path / "none.toml").endswith(
        "none.toml: no such file or shipped scenario; `slotwise scenarios` lists what there is"
    )
    assert message(tmp_path) == f"{tmp_path}: is a directory; name a TOML file in it"
    broken = tmp_path / "broken.toml"
    broken.write_text("[cluster\n")
    assert message(broken).startswith(f"{broken}: is not valid TOML: ")
    assert "line 1" in message(broken)
    broken.write_bytes(b"\xff\xfe\x00")
    assert message(broken).startswith(f"{broken}: is not a text file; give a scenario")
    assert message(broken).endswith("as workload.trace")
    assert "cannot be read" in message(broken / "below")
    broken.write_text(GOOD.replace("rate = 3", "rate = -3"))
    assert message(broken) == f"{broken}: types[0].rate: is -3; must be at least 0"


SETTINGS = [
    ("run.seed", "--set run.seed: is not a setting; write key=value, such as run.seed=7"),
    ("=5", "--set =5: is not a setting; write key=value"),
    ("cluster.servers.huge.count=1", "there is no 'huge'; use one of: standard"),
    ("cluster.servers.7.count=1", "there is no '7'; use one of: standard"),
    ("types.0.demand.9=1", "there is no '9'; use one of: 0 to 2"),
    ("types.standard.name.first=1", "types.standard.name is a value, not a table; shorten the key"),
    ("types.standard.name.first.second=1", "there is no table above 'first'"),
    ("run.sede=7", "table1: run.sede: unknown key; did you mean seed?"),
    ("run.seed=many", "table1: run.seed: is 'many'; must be a whole number"),
    ("cluster.servers.standard.count=-2", "table1: cluster.servers[0].count: is -2; must be at least 0"),
    ("workload.intensity=inf", "table1: workload.intensity: is inf; must be a finite number"),
    ("run=5", "table1: run: is 5; must be a table"),
]


@pytest.mark.parametrize(("setting", "message"), SETTINGS)
def test_bad_settings(setting: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_scenario("table1", [setting], said="--set")
    assert message in str(caught.value)
    assert caught.value.remedy


def test_a_length_after_a_broken_run_table_is_still_a_mistake_and_not_a_crash() -> None:
    with pytest.raises(InputError):
        load_scenario("table1", ["run=5", "run.events=7"])
