"""The dashboard in a real Chromium: the journeys of a user, with no message in the console and no serious finding of axe-core.

`tools/system/with-chromium` installs what this needs. With SLOTWISE_PICTURES=1 the pictures of docs/guides/dashboard.md are made anew.
"""

from __future__ import annotations

import http.server
import json
import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from processes import PATIENCE, Process

from slotwise.live import Client
from slotwise.live.transport import ServiceError

BROWSER = os.environ.get("SLOTWISE_TEST_BROWSER", "")
ROOT = Path(__file__).parents[2]
AXE = ROOT / "build" / "vendor" / "axe.js"
PICTURES, GUIDE = ROOT / "build" / "pictures", ROOT / "docs" / "guides" / "images"
WAIT = 60_000  # milliseconds that a page may take on a slow machine
DESK, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
VIEWS = ("", "queues", "jobs", "timeline", "usage", "whatif", "decisions")
FIRST_LOAD = 300_000  # bytes
IN_GUIDE = ("cluster", "queues", "desk-jobs-one")  # pictures of docs/guides/dashboard.md

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not BROWSER, reason="needs Chromium and Playwright: run it with tools/system/with-chromium"),
]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("demo")
    made = Process(folder, "--demo", "--speed", "3", "--store", f"sqlite:///{folder}/demo.db")
    made.start()
    yield made
    made.clean_up()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A browser window with a session, and everything that its console says."""

    def __init__(self, chromium: Any, service: Process, token: str | None = None, **options: Any) -> None:
        self.service, self.said = service, []
        self.context = chromium.new_context(**{"viewport": DESK, "timezone_id": "Europe/Berlin", **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT)
        self.page.on("console", lambda message: self.hear(message))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.said.append(f"dialog: {dialog.message}"))
        if token != "":
            self.page.goto(link(service, token))
            self.ready()

    def hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.said.append(f"{message.type}: {message.text}")

    def ready(self, view: str = "") -> None:
        self.page.wait_for_selector(f'body[data-ready][data-view="{view}"]', timeout=WAIT)

    def go(self, path: str) -> Any:
        self.page.goto(f"{self.service.address}/#/{path}")
        self.ready(unquote(path.partition("?")[0]))
        return self.page

    def picture(self, name: str) -> None:
        folder = GUIDE if os.environ.get("SLOTWISE_PICTURES") and name in IN_GUIDE else PICTURES
        folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=folder / f"dashboard-{name}.png")

    def close(self) -> None:
        self.context.close()
        assert self.said == []


def link(service: Process, token: str | None = None) -> str:
    more = {} if token is None else {"SLOTWISE_TOKEN": token}
    made = service.command("open", "--print", **more)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def until(ask: Callable[[], Any], good: Callable[[Any], bool]) -> Any:
    """Ask again and again until the answer is good."""
    end = time.monotonic() + PATIENCE
    while not good(found := ask()):
        assert time.monotonic() < end, found
        threading.Event().wait(0.5)
    return found


def client(service: Process) -> Client:
    os.environ["XDG_STATE_HOME"] = service.environment["XDG_STATE_HOME"]
    return Client(service.address)


@pytest.fixture
def visit(chromium: Any, demo: Process) -> Iterator[Callable[..., Visit]]:
    made: list[Visit] = []

    def begin(*arguments: Any, **options: Any) -> Visit:
        made.append(Visit(chromium, demo, *arguments, **options))
        return made[-1]

    yield begin
    for one in made:
        one.close()


def test_a_link_shows_the_cluster_once(visit: Callable[..., Visit], demo: Process) -> None:
    one = visit(token="")
    loaded: list[int] = []
    one.page.on("response", lambda answer: loaded.append(int(answer.headers.get("content-length", 0))))
    address = link(demo)
    one.page.goto(address)
    one.ready()
    assert sum(loaded) < FIRST_LOAD
    page = one.page
    assert page.url == f"{demo.address}/"
    assert page.locator("table tbody tr").count() > 40
    colours = page.evaluate(
        """() => { const c = document.querySelector(".cells canvas"); const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        const seen = new Set(); for (let i = 0; i < d.length; i += 4 * 97) seen.add(d[i] * 65536 + d[i + 1] * 256 + d[i + 2]); return seen.size; }"""
    )
    assert colours >= 3, "allocated and free cells, and names"
    one.picture("first")
    again = visit(token="")
    again.page.goto(address)
    again.page.get_by_text("it was used before").wait_for()
    [said] = again.said
    assert "401" in said, "the question who this is"
    again.said.clear()
    cookies = one.context.cookies()
    assert [(cookie["httpOnly"], cookie["sameSite"]) for cookie in cookies] == [(True, "Strict")]
    assert page.evaluate("document.cookie") == ""


@pytest.mark.parametrize("look", ["desk", "phone", "dark"])
def test_every_view_is_whole_and_accessible(visit: Callable[..., Visit], demo: Process, look: str) -> None:
    options = {
        "desk": {},
        "phone": {"viewport": PHONE, "device_scale_factor": 2, "has_touch": True},
        "dark": {"color_scheme": "dark"},
    }
    one = visit(bypass_csp=True, **options[look])
    with client(demo) as service:
        number = next(service.jobs(state="running", limit=1)).id
    for view in (*VIEWS, f"jobs/{number}", "servers/std-3"):
        page = one.go(view)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{view} scrolls sideways"
        assert page.locator("nav ul").evaluate("(list) => list.scrollWidth <= list.clientWidth"), (
            "a view's name is cut off"
        )
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations)")
        serious = [
            (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
            for one in found
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == [], view
        one.picture(f"{look}-{view.partition('/')[0] or 'cluster'}{'-one' if '/' in view else ''}")


def test_a_job_from_submission_to_its_end(visit: Callable[..., Visit], demo: Process) -> None:
    with client(demo) as service:
        job = service.submit(["count", "to", "three"], type="web", name="counting", duration=9.0)
    one = visit()
    page = one.go(f"jobs/{job.id}")
    page.get_by_role("heading", name=f"Job {job.id}: counting").wait_for()
    page.locator(".output", has_text="done").wait_for()
    page.locator(".bar .state", has_text="done").wait_for()
    page.get_by_text("ends as done, exit code 0").wait_for()
    page.locator(".output", has_text="count: 100 % done").wait_for()


def test_why_a_job_waits_and_when_it_starts(visit: Callable[..., Visit], demo: Process) -> None:
    with client(demo) as service:
        jobs = [service.submit(["fill"], type="large", name="filling", duration=10_000.0) for _ in range(60)]
        one = visit()
        page = one.go(f"jobs/{jobs[-1].id}")
        page.get_by_role("heading", name="Why it waits").wait_for()
        refused = page.get_by_role("region", name="Servers nearest to taking it").locator("tbody tr")
        refused.first.wait_for()
        assert refused.first.get_by_role("link").get_attribute("href").startswith("#/servers/")
        assert "has too little free" in refused.first.inner_text()
        assert "cpu" in refused.first.locator("td").nth(1).inner_text(), "what it lacks"
        page.get_by_text("is too small").first.wait_for()  # those that can never take it are counted
        page.get_by_role("heading", name="When it should start").wait_for()
        asked = page.locator("section.urgent", has_text="When it should start")
        asked.get_by_text("8 times in 10").or_(asked.get_by_text("Not known yet")).wait_for()
        one.picture("job")
        page.get_by_role("button", name="Cancel …").click()
        page.get_by_text("It never starts, and cannot be brought back").wait_for()
        page.get_by_role("button", name="Cancel the job").click()
        page.locator(".bar .state", has_text="cancelled").wait_for()
        for job in jobs[:-1]:
            with suppress(ServiceError):  # the job has started
                service.cancel(job.id)
                continue
            with suppress(ServiceError):  # the job has ended
                service.stop(job.id)


def test_a_forecast_is_shown_with_how_often_its_like_came_true(visit: Callable[..., Visit], demo: Process) -> None:
    """The page is given answers, so that the test does not depend on what the service knows by now."""
    with client(demo) as service:
        jobs = [service.submit(["fill"], type="large", name="ahead", duration=10_000.0) for _ in range(60)]
        one, asked = visit(), f"/v1/forecast/{jobs[-1].id}"
        told: dict[str, Any] = {
            "p10": 60.0,
            "p50": 300.0,
            "p90": 7200.0,
            "coverage": 0.81,
            "of": 2000,
            "as_of": time.time(),
        }
        one.page.route(f"**{asked}", lambda route: route.fulfill(json=told))
        page = one.go(f"jobs/{jobs[-1].id}")
        shown = page.locator("section.urgent", has_text="When it should start")
        shown.get_by_text("in 5 min").wait_for()
        shown.get_by_text(
            "81 % of the last 2,000 starts with such a forecast lay within their 80 % interval."
        ).wait_for()
        first, last = (time.strftime("%H:%M", time.gmtime(told["as_of"] + seconds)) for seconds in (60, 7200))
        zone = page.evaluate("new Date().getTimezoneOffset()")
        hours = [page.evaluate("(at) => new Date(at).getUTCHours() * 60 + new Date(at).getUTCMinutes()", at)
                 for at in shown.locator("dd").nth(1).locator("time").evaluate_all("(all) => all.map((one) => one.dateTime)")]  # fmt: skip
        assert [f"{minutes // 60:02d}:{minutes % 60:02d}" for minutes in hours] == [first, last]
        assert zone in (-60, -120), "Berlin, as the browser of this test says"
        told |= {"p90": None}
        shown.get_by_text("until when is not known").wait_for()
        told |= {"p10": None, "p50": None, "reason": "not known yet: 3 jobs have completed"}
        shown.get_by_text("Not known yet: 3 jobs have completed.").wait_for()
        service.call("POST", "/v1/jobs/cancel", json={"name": "ahead"})


def test_drain_and_resume_with_the_effect_first(visit: Callable[..., Visit], demo: Process) -> None:
    one = visit()
    page = one.go("servers/gpu-2")
    page.get_by_role("button", name="Drain …").click()
    page.get_by_text("take no more jobs").first.wait_for()
    with client(demo) as service:
        status = {found["name"]: found["status"] for found in service.servers()}
        assert status["gpu-2"] == "up", "nothing happens before it is confirmed"
        page.get_by_label("Reason").fill("new <b>disk</b>")
        page.get_by_role("button", name="Drain the server").click()
        page.locator(".bar .state", has_text="draining").wait_for()
        page.get_by_text("Reason: new <b>disk</b>").wait_for()
        page.get_by_role("button", name="Resume …").click()
        page.get_by_role("button", name="Resume the server").click()
        page.locator(".bar .state", has_text="up").wait_for()


def test_the_policy_is_changed_after_its_effect_was_shown(visit: Callable[..., Visit]) -> None:
    one = visit()
    page = one.go("")
    page.get_by_role("button", name="Change the policy …").click()
    page.get_by_label("New policy").select_option("best-fit")
    page.get_by_role("heading", name="What this does").wait_for()
    one.picture("policy")
    page.get_by_role("button", name="Apply").click()
    page.locator(".policy", has_text="best-fit").wait_for()
    page.get_by_role("button", name="Change the policy …").click()
    page.get_by_label("New policy").select_option("guarded")
    page.get_by_role("button", name="Apply").click()
    page.locator(".policy", has_text="guarded").wait_for()
    page = one.go("decisions?kind=changes")
    page.get_by_text("the cluster changes: policy").first.wait_for()


def test_what_if(visit: Callable[..., Visit]) -> None:
    one = visit()
    page = one.go("whatif")
    page.get_by_label("Add servers of class").select_option("gpu")
    page.get_by_role("button", name="Run both").click()
    page.get_by_text("Side by side").or_(page.get_by_text("Not known yet")).or_(
        page.locator(".problem")
    ).first.wait_for(timeout=4 * WAIT)
    assert page.locator(".problem").count() == 0, page.locator(".problem").first.inner_text()
    one.picture("whatif")


def test_what_if_shows_both_sides(visit: Callable[..., Visit]) -> None:
    """The page is given an answer, so that the test does not depend on how fast the machine is."""

    def between(middle: float) -> dict[str, float]:
        return {"p10": middle / 2, "p50": middle, "p90": 2 * middle}

    def side(queue: float, wait: float) -> dict[str, Any]:
        waits = {"wait": between(wait)}
        return {"queue": {"mean": between(queue), "end": between(queue)}, "types": {"web": waits}, "tenants": {"shop": waits},
                "starved": between(0.0), "utilisation": {"cpu": between(0.5)}, "headroom": between(0.2)}  # fmt: skip

    one = visit()
    asked: list[Any] = []

    def answer(route: Any) -> None:
        asked.append(route.request.post_data_json)
        change = {"wait": {"p10": -20.0, "p50": -15.0, "p90": -10.0}}
        route.fulfill(
            json={"now": side(8.0, 30.0), "then": side(4.0, 15.0), "change": change, "hours": 2, "runs": 24}
        )

    one.page.route("**/v1/whatif", answer)
    page = one.go("whatif")
    assert page.get_by_role("button", name="Run both").is_disabled(), "nothing is chosen yet"
    page.get_by_label("Add servers of class").select_option("gpu")
    page.get_by_label("how many to add").fill("3")
    page.get_by_label("More or fewer jobs of type").select_option("web")
    page.get_by_label("percent of the cluster").fill("40")
    page.get_by_label("The tenant with this share").fill("shop")
    page.get_by_role("button", name="Run both").click()
    page.get_by_text("15 s shorter").wait_for()
    assert asked == [{"add": {"gpu": 3}, "rate": {"web": 1.5}, "share": {"shop": 0.4}, "hours": 2}]
    row = page.locator("tr", has_text="wait of tenant shop").inner_text()
    assert "30 s (15 s to 1 min)" in row
    assert "15 s (7.5 s to 30 s)" in row
    one.picture("whatif-answered")


def test_by_keyboard_alone(visit: Callable[..., Visit]) -> None:
    one = visit()
    page = one.go("")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('cells')"):
            break
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    chosen = page.locator(".chosen a").inner_text()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"Server {chosen}", exact=True).wait_for()
    page.get_by_role("link", name="Jobs", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Jobs").wait_for()


def test_roles_show_what_they_may_do(visit: Callable[..., Visit], demo: Process) -> None:
    made = json.loads(demo.command("token", "create", "--role", "read", "--json").stdout)
    one = visit(made["token"])
    page = one.go("servers/std-1")
    page.get_by_role("heading", name="What it holds").wait_for()
    assert page.get_by_role("button", name="Drain …").count() == 0
    assert one.go("").get_by_role("button", name="Change the policy …").count() == 0
    refused = page.evaluate(
        "fetch('/v1/servers/std-1/drain', {method: 'POST', headers: {'X-Slotwise': '1'}}).then((a) => a.status)"
    )
    assert refused == 403
    assert all("403" in text for text in one.said)
    one.said.clear()
    demo.command("token", "revoke", made["id"])
    page.reload()
    page.get_by_text("has no session").wait_for()
    one.said.clear()


def test_times_are_in_the_zone_of_the_viewer(visit: Callable[..., Visit]) -> None:
    shown = []
    for zone in ("Asia/Tokyo", "America/New_York"):
        page = visit(timezone_id=zone, locale="en-GB").go("decisions")
        page.get_by_role("button", name="Older").click()
        page.wait_for_url("**before=**")
        first = page.locator("ol.rows time").first
        shown.append(
            first.get_attribute("datetime") != ""
            and page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
        )
        hour = page.evaluate(
            "() => { const t = document.querySelector('ol.rows time'); return [t.textContent.slice(0, 2), String(new Date(t.dateTime).getHours()).padStart(2, '0')]; }"
        )
        assert hour[0] == hour[1]
    assert shown == ["Asia/Tokyo", "America/New_York"]


PAYLOADS = (
    "<img src=x onerror=window.pwned=1>", "<script>window.pwned=1</script>", "'\"><svg onload=window.pwned=1>",
    "javascript:window.pwned=1", "{{constructor.constructor('window.pwned=1')()}}", "${window.pwned=1}", "</title><script>window.pwned=1</script>",
    "\u202egnp.exe", "a\u0301\u0302" * 40, "x" * 200, "__proto__", "#/jobs?state=<b>", "%3Cscript%3E", "a\u2066b\u200bc",
)  # fmt: skip
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
MADE = "#app script, #app img, #app iframe, #app object, #app style, #app [onerror], #app [onload], #app [style*=url], a[href^='javascript:']"


def harmless(page: Any) -> None:
    assert page.evaluate("window.pwned") is None
    assert page.locator(MADE).count() == 0
    assert HIDDEN.search(page.evaluate("document.getElementById('app').textContent").replace("\n", "")) is None


def test_names_labels_and_outputs_are_text(chromium: Any, tmp_path: Path) -> None:
    """Names, labels, commands, outputs and reasons with markup, controls and marks that turn text around, in every view."""
    chance = random.Random(30)
    letters = "<>'\"&`=/\\(){}[];:%#\u202e\u2066\u200babc onerror script"
    fuzzed = ["".join(chance.choices(letters, k=30)) for _ in range(10)]
    made = Process(tmp_path, "--demo", "--speed", "1", "--store", f"sqlite:///{tmp_path}/demo.db")
    made.start()
    try:
        with client(made) as service:
            jobs = []
            for text in (*PAYLOADS, *fuzzed):
                labels = {text[:100]: text[:100]} if text[:100].isprintable() and text.strip() else {}
                jobs.append(
                    (service.submit([text or "x"], type="web", name=text, labels=labels, duration=600.0), text)
                )
            with pytest.raises(ServiceError, match="control characters"):
                service.submit(["x"], type="web", name="\x1b[2J\x07")
            service.call("POST", "/v1/servers/std-5/drain", json={"reason": PAYLOADS[0] + PAYLOADS[7]})
            server = until(lambda: service.job(jobs[0][0].id), lambda job: job.server is not None).server
        one = Visit(chromium, made, timezone_id="UTC")
        for job, text in jobs:
            page = one.go(f"jobs/{job.id}")
            shown = page.locator("h1").evaluate("(heading) => heading.textContent")
            assert shown == f"Job {job.id}: " + HIDDEN.sub(lambda hit: f"⟨U+{ord(hit[0]):04X}⟩", text)
            page.locator("pre.output").wait_for()
            page.get_by_role("button", name="Stop …").click()
            page.get_by_role("button", name="Keep as it is").click()
            harmless(page)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page = one.go("jobs?search=window.pwned")
        assert page.locator("tbody tr").count() == sum("window.pwned" in text for _, text in jobs)
        harmless(page)
        page = one.go("")
        page.locator("td", has_text="onerror=window.pwned").wait_for()
        harmless(page)
        for view in (
            f"servers/{server}",
            "servers/std-5",
            "jobs",
            "queues",
            "timeline",
            "whatif",
            "decisions",
            "decisions?kind=changes",
        ):
            one.go(view)
            harmless(page)
        one.go("timeline").locator("summary").last.click()
        harmless(page)
        one.go("servers/%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E").get_by_text(
            "no server of this name"
        ).wait_for()
        harmless(page)
        one.close()
    finally:
        made.clean_up()


FOREIGN = """<!doctype html><title>elsewhere</title><form id=f method=post enctype=text/plain action="{target}/v1/servers/std-2/drain"><input name='{{"reason":"' value='x"}}'></form>
<script>
const tries = [
  fetch("{target}/v1/servers/std-2/drain", {{method: "POST", credentials: "include", mode: "no-cors", body: "{{}}"}}),
  fetch("{target}/v1/servers/std-2/drain", {{method: "POST", credentials: "include", headers: {{"X-Slotwise": "1", "Content-Type": "application/json"}}, body: "{{}}"}}),
  fetch("{target}/v1/board", {{credentials: "include"}}).then((a) => a.text()).then((text) => {{ window.stolen = text; }}),
  new Promise((done) => {{ const s = new EventSource("{target}/v1/board/changes", {{withCredentials: true}}); s.onerror = done; s.addEventListener("full", (e) => {{ window.stolen = e.data; done(); }}); }}),
];
Promise.allSettled(tries).then(() => {{ document.body.dataset.tried = ""; }});
</script><body></body>"""


def test_a_page_of_elsewhere_cannot_act_or_read(chromium: Any, demo: Process) -> None:
    body = FOREIGN.format(target=demo.address).encode()

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        one = Visit(chromium, demo)
        page = one.context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for_selector("body[data-tried]", timeout=WAIT)
        assert page.evaluate("window.stolen") is None
        page.evaluate("document.getElementById('f').submit()")
        page.wait_for_load_state()
        frame = one.context.new_page()
        frame.goto(f"http://127.0.0.1:{server.server_port}/")
        frame.evaluate(f"document.body.innerHTML = '<iframe src=\"{demo.address}/\"></iframe>'")
        server.shutdown()
        one.context.close()
    with client(demo) as service:
        assert {found["name"]: found["status"] for found in service.servers()}["std-2"] == "up"


def test_a_job_is_found_among_many(visit: Callable[..., Visit], demo: Process) -> None:
    with client(demo) as service:
        # of each array one job runs, all others are held: a hundred thousand that run would keep the demo from answering on a slow machine
        hay = {"type": "web", "name": "haystack", "duration": 10_000.0}
        for _ in range(10):
            service.submit(["one"], array="1-10000%1", **hay)  # the demo has more
        needle = service.submit(["other"], type="web", name="Needle-77", duration=0.01).id
        service.submit(["one"], array="1-2000%1", **hay)
        one = visit()
        page = one.go("jobs")
        page.get_by_label("Find").fill("needle")
        page.locator("tbody tr", has_text="Needle-77").wait_for()
        assert page.locator("tbody tr").count() == 1
        assert "search=needle" in page.url
        page.reload()
        one.ready("jobs")
        page.locator("tbody tr", has_text="Needle-77").wait_for()
        one.picture("search")
        page.get_by_label("Find").fill(str(needle))
        page.get_by_role("link", name=str(needle), exact=True).click()
        page.get_by_role("heading", name=f"Job {needle}").wait_for()


def test_a_service_that_restarts_under_an_open_page(chromium: Any, tmp_path: Path) -> None:
    service = Process(tmp_path, "--demo", "--speed", "5", "--store", f"sqlite:///{tmp_path}/demo.db")
    service.start()
    try:
        one = Visit(chromium, service)
        page = one.page
        page.locator(".link", has_text="live").wait_for()
        with client(service) as asking:
            job = asking.submit(["before"], type="web", name="before-the-restart", duration=1.0).id
        where = page.locator("h1").bounding_box()
        service.end(signal.SIGKILL)
        page.locator(".link", has_text="no connection").wait_for()
        page.locator(".alarms", has_text="what is shown is as it was").wait_for()
        assert page.locator("h1").bounding_box() == where, "an alarm moves nothing"
        assert page.locator("table tbody tr").count() > 40, "what was known is still shown"
        one.picture("stopped")
        service.start()
        page.locator(".link", has_text="live").wait_for(timeout=PATIENCE * 1000)
        page.locator(".alarms", has_text="no connection").wait_for(state="detached")
        one.go(f"jobs/{job}").get_by_role("heading", name="before-the-restart").wait_for()
        page.get_by_text("of type web comes").wait_for()
        one.go("queues").locator(".u-legend").first.wait_for()
        one.context.close()
        assert all("net::ERR" in text or "Failed to load resource" in text for text in one.said), one.said
    finally:
        service.clean_up()


CLUSTER = """[cluster]
resources = ["cpu", "memory"]
[[cluster.servers]]
name = "{name}"
count = {count}
capacity = [32, 128]
[[types]]
name = "a-type-with-a-name-that-is-longer-than-most"
demand = [1, 4]
mean_service = 60
[policy]
name = "best-fit"
"""


@pytest.mark.parametrize(
    ("count", "name"),
    [(3, "a-server-with-quite-a-long-host-name.cluster.example.org"), (300, "n"), (10_000, "node")],
)
def test_clusters_of_any_size_without_a_job(chromium: Any, tmp_path: Path, count: int, name: str) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER.format(name=name, count=count))
    service = Process(tmp_path, "cluster.toml", "--engine", "simulated", "--store", f"sqlite:///{tmp_path}/x.db")
    service.start()
    try:
        for look in ({}, {"viewport": PHONE}):
            one = Visit(chromium, service, **look)
            page = one.page
            until(lambda page=page: page.locator(".figure").nth(3).inner_text(), lambda text: f"{count:,}" in text)
            page.get_by_text("No job waits and none runs").wait_for()
            assert page.locator("canvas").bounding_box()["height"] > 30  # type: ignore[index]
            one.picture(f"{'phone' if look else 'desk'}-{count}-servers")
            for view, text in (
                ("queues", "No job was there in this window"),
                ("jobs", "No job has been submitted yet"),
                ("timeline", "No job was here in this window"),
                ("decisions?kind=trouble", "There is no row of this kind"),
                (f"servers/{name}-0", "No job."),
            ):
                one.go(view).get_by_text(text).first.wait_for()
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
                    f"{view} scrolls sideways"
                )
            one.close()
    finally:
        service.clean_up()


def test_a_session_that_ends_and_a_link_that_is_wrong(visit: Callable[..., Visit], demo: Process) -> None:
    one = visit()
    one.context.clear_cookies()
    one.page.get_by_role("link", name="Jobs", exact=True).click()
    one.page.get_by_text("This browser has no session, or its session has ended.").wait_for()
    one.page.get_by_text("slotwise open", exact=True).wait_for()
    assert one.page.locator("table").count() == 0, "nothing of the cluster is left on the page"
    one.page.goto(f"{demo.address}/login?code=wrong")
    one.page.get_by_text("it was used before").wait_for()
    assert all("401" in text for text in one.said)
    one.said.clear()
    one.page.goto(link(demo))
    one.ready()
    one.page.get_by_role("button", name="Log out").click()
    one.page.get_by_text("has no session").wait_for()
    assert all("401" in text for text in one.said)
    one.said.clear()


def test_failures_of_the_past_are_found(visit: Callable[..., Visit], demo: Process) -> None:
    """A filter of the journal searches the store, not only the newest rows: there, failures are rare."""
    with client(demo) as service:
        until(lambda: sum(1 for _ in service.jobs(state="failed", limit=20)), lambda count: count >= 20)
    one = visit()
    one.go("")
    one.picture("cluster")  # by now the demo has jobs that wait and servers that turn
    one.go("queues").locator(".u-legend").first.wait_for()
    one.picture("queues")
    page = one.go("decisions?kind=trouble")
    rows = page.locator("ol.rows li")
    rows.nth(19).wait_for()
    told = rows.all_inner_texts()
    assert all(re.search("failed|lost|leaves its server|goes back", text) for text in told), told
    titles = rows.evaluate_all("(all) => all.map((row) => row.querySelector('[title^=row]').title)")
    numbers = [int(title.split()[1].replace(",", "")) for title in titles]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[0] - numbers[19] > 60, "more rows than a page has lie between them"


def test_ages_go_on_while_nothing_changes(chromium: Any, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(CLUSTER.format(name="n", count=1))
    service = Process(tmp_path, "cluster.toml", "--engine", "simulated", "--store", f"sqlite:///{tmp_path}/x.db")
    service.start()
    try:
        with client(service) as asking:
            kind = "a-type-with-a-name-that-is-longer-than-most"
            asking.submit_many([{"argv": ["x"], "type": kind, "duration": 1e4}] * 33)  # one server takes 32
        one = Visit(chromium, service)
        age = one.page.locator(".figure").first.locator("dd.hint")
        first = until(age.inner_text, lambda text: text.startswith("oldest for"))
        until(age.inner_text, lambda text: text.startswith("oldest for") and text != first)
        one.close()
    finally:
        service.clean_up()
