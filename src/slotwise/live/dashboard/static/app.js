// The dashboard: a client of the public API and its event stream. This module has the frame: navigation, alarms, login, theme.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, get, onSignedOut, setOffers } from "./api.js";
import { store } from "./board.js";
import { useRoute } from "./route.js";
import { html, useBoard, useReady, Problem, Time } from "./ui.js";
import { Cluster } from "./views/cluster.js";

// A view is loaded when it is shown for the first time: the first load stays small.
const VIEWS = {
  "": ["Cluster", async () => Cluster],
  queues: ["Queues", async () => (await import("./views/queues.js")).Queues],
  jobs: ["Jobs", async () => (await import("./views/jobs.js")).Jobs],
  timeline: ["Timeline", async () => (await import("./views/timeline.js")).Timeline],
  usage: ["Usage", async () => (await import("./views/usage.js")).Usage],
  whatif: ["What if", async () => (await import("./views/whatif.js")).WhatIf],
  decisions: ["Decisions", async () => (await import("./views/decisions.js")).Decisions],
};
const DETAIL = {
  jobs: async () => (await import("./views/job.js")).Job,
  servers: async () => (await import("./views/server.js")).Server,
};

const THEMES = { auto: ["◐", "Theme: as the system"], light: ["○", "Theme: light"], dark: ["●", "Theme: dark"] };

function useTheme() {
  const [theme, set] = useState(localStorage.getItem("theme") || "auto");
  useEffect(() => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
    store.tell();
  }, [theme]);
  const next = { auto: "light", light: "dark", dark: "auto" };
  return [theme, () => set(next[theme] || "auto")];
}

function Login({ wrong }) {
  useReady(true);
  return html`<main class="login" id="main"><h1>Slotwise</h1>
    ${wrong
      ? html`<p class="problem" role="alert">This link does not open a session: it was used before, or it is older than five minutes.</p>`
      : html`<p>This browser has no session, or its session has ended.</p>`}
    <p>Ask for a link that opens one session, on a machine where the command line has access:</p>
    <pre><code>slotwise open</code></pre>
    <p class="hint"><code>slotwise open --print</code> prints the link instead of opening a browser.</p></main>`;
}

/** What needs attention, in one line that is always there, so that nothing moves when an alarm comes or goes. */
function Alarms({ board, lost }) {
  const alarms = lost ? [{ kind: "no connection", text: "what is shown is as it was when the connection was lost", since: board.now }] : [];
  if (board.trouble) alarms.push({ kind: "trouble", text: board.trouble, since: null });
  alarms.push(...board.alarms.filter((one) => one.kind !== "trouble" || !board.trouble));
  const told = (one) => html`<strong>${one.kind}</strong> ${one.text}${one.since ? html` <span class="hint">since <${Time} at=${one.since} /></span>` : null}`;
  if (!alarms.length) return html`<section class="alarms calm" aria-label="Alarms"><p>No alarms</p></section>`;
  if (alarms.length === 1) return html`<section class="alarms" aria-label="Alarms"><details><summary>${told(alarms[0])}</summary><p class="all">${told(alarms[0])}</p></details></section>`;
  return html`<section class="alarms" aria-label="Alarms"><details><summary><span class="count">${alarms.length}</span> ${told(alarms[0])}</summary>
    <ul class="all">${alarms.map((one) => html`<li key=${one.kind}>${told(one)}</li>`)}</ul></details></section>`;
}

function Frame({ who, signOut }) {
  const route = useRoute();
  const board = useBoard();
  const [theme, turnTheme] = useTheme();
  const [view, setView] = useState(null);
  const [error, setError] = useState(null);
  const key = route.detail !== null && DETAIL[route.name] ? `${route.name}/${route.detail}` : route.name;
  useEffect(() => {
    const load = route.detail !== null && DETAIL[route.name] ? DETAIL[route.name] : (VIEWS[route.name] || VIEWS[""])[1];
    let over = false;
    delete document.body.dataset.ready;
    document.body.dataset.view = key;
    load().then((Found) => { if (!over) { setView({ key, Found }); setError(null); } }, (failed) => { if (!over) setError(failed); });
    const title = route.detail !== null ? `${route.name.replace(/s$/, "")} ${route.detail}` : (VIEWS[route.name] || VIEWS[""])[0];
    document.title = `${title} · Slotwise`;
    return () => { over = true; };
  }, [key]);
  const [sign, title] = THEMES[theme] || THEMES.auto;
  const away = store.connection !== "live";
  const current = route.name === "servers" ? "" : route.name;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
    <header>
      <a class="brand" href="#/">Slotwise</a>
      <nav aria-label="Views"><ul>${Object.entries(VIEWS).map(([name, [title]]) => html`<li key=${name}>
        <a href=${`#/${name}`} aria-current=${current === name ? "page" : null}>${title}</a></li>`)}</ul></nav>
      <div class="corner">
        <span class=${`link ${away ? "link-away" : ""}`} role="status">${{ live: "live", connecting: "connecting" }[store.connection] || "no connection, trying again"}</span>
        <span class="hint who" title="Your role">${who.role}${who.tenant === "*" ? "" : `, tenant ${who.tenant}`}</span>
        <button type="button" class="sign" onClick=${turnTheme} title=${title} aria-label=${title}>${sign}</button>
        <button type="button" onClick=${signOut}>Log out</button>
      </div>
    </header>
    ${board ? html`<${Alarms} board=${board} lost=${store.connection === "lost"} />` : html`<section class="alarms calm" aria-label="Alarms"><p>…</p></section>`}
    <main id="main" tabindex="-1" class=${store.connection === "lost" ? "stale" : null}>
      <${Problem} error=${error} />
      ${board && view && view.key === key
        ? html`<${view.Found} key=${key} route=${route} who=${who} board=${board} />`
        : html`<p class="hint">${away && !board ? "The service does not answer; trying again." : "Loading …"}</p>`}
    </main>`;
}

function App() {
  const [who, setWho] = useState(undefined);
  const [wrong] = useState(location.hash.startsWith("#/login?wrong"));
  const enter = async () => {
    try {
      const found = await get("/v1/me");
      setOffers(found.offers);
      setWho(found);
    } catch (error) {
      if (error.status === 401) setWho(null);
      else setTimeout(enter, 2000); // the service is away for a moment
    }
  };
  useEffect(() => {
    onSignedOut(() => { store.close(); setWho(null); });
    if (wrong) history.replaceState(null, "", "#/");
    enter();
  }, []);
  useEffect(() => { if (who) store.open(); }, [who && who.role]);
  const signOut = async () => {
    await call("POST", "/logout");
    store.close();
    setWho(null);
  };
  if (who === undefined) return html`<p class="hint">Loading …</p>`;
  if (who === null) return html`<${Login} wrong=${wrong} />`;
  return html`<${Frame} who=${who} signOut=${signOut} />`;
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => store.tell());
document.getElementById("app").textContent = "";
render(html`<${App} />`, document.getElementById("app"));
