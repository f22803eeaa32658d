// The cluster: figures, every server as a cell, what waits, and a table that says the same as the map.

import { useMemo, useState } from "preact/hooks";
import { get, withQuery } from "../api.js";
import { capacities, order, serverAt } from "../board.js";
import { amount, number, percent, several, span } from "../format.js";
import { setQuery } from "../route.js";
import { Choice, html, Meter, Said, ServerLink, State, Table, useLoaded, useReady } from "../ui.js";
import { Cells } from "./map.js";
import { PolicyChange } from "./policy.js";

const ROWS = 50; // of the table at once
const MOST_QUEUES = 10; // beside the map
const NAMED = 400; // servers; up to so many, cells are wide enough for names unless the user wants them small

/** One line about the server that is chosen on the map. */
function Chosen({ board, place, resource }) {
  if (place === null || place >= board.names.length) {
    return html`<p class="chosen hint" role="status">Point at a server, or choose one with the arrow keys.</p>`;
  }
  const one = serverAt(board, place);
  const parts = board.resources.map((name, r) => [name, r]).filter(([, r]) => one.capacity[r]).map(([name, r]) => `${amount(one.used[r])} of ${amount(one.capacity[r])} ${name}${one.kept[r] ? ` (${amount(one.kept[r])} kept)` : ""}`);
  return html`<p class="chosen" role="status"><${ServerLink} name=${one.name} /> <${State} of=${one.status} text=${one.shown} />
    ${" "}${several(one.jobs, "job")}; ${parts.join(", ")}${one.reason ? html` – <${Said} text=${one.reason} />` : ""}</p>`;
}

const SORTS = { name: "name", status: "status", free: "least free first", jobs: "most jobs first" };

function ServerTable({ board, places, resource, route }) {
  const sort = SORTS[route.query.get("sort")] ? route.query.get("sort") : "name";
  const sizes = capacities(board);
  const rank = useMemo(() => {
    const list = [...places];
    const rest = (at) => {
      const whole = (sizes.get(board.server_classes[at]) || [])[resource] || 0;
      return whole ? (whole - board.servers[at][2][resource]) / whole : 2;
    };
    if (sort === "free") list.sort((a, b) => rest(a) - rest(b));
    if (sort === "jobs") list.sort((a, b) => board.servers[b][1] - board.servers[a][1]);
    if (sort === "status") list.sort((a, b) => board.servers[b][0] - board.servers[a][0]);
    return list;
  }, [places, sort, resource, sort === "name" ? 0 : board.seq]);
  const pages = Math.max(1, Math.ceil(rank.length / ROWS));
  const page = Math.min(pages - 1, Math.max(0, Number(route.query.get("page")) || 0));
  const shown = rank.slice(page * ROWS, (page + 1) * ROWS);
  const turn = (to) => setQuery(route, { page: to || null });
  return html`<section aria-label="Servers as a table">
    <div class="bar"><h2>Servers</h2>
      <label>Order <select value=${sort} onChange=${(event) => setQuery(route, { sort: event.target.value === "name" ? null : event.target.value, page: null })}>
        ${Object.entries(SORTS).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label>
      <span class="hint">${number(rank.length)} of ${number(board.names.length)}${pages > 1 ? `, page ${page + 1} of ${pages}` : ""}</span>
      ${pages > 1 ? html`<span class="pager"><button type="button" disabled=${page === 0} onClick=${() => turn(page - 1)}>Previous</button>
        <button type="button" disabled=${page === pages - 1} onClick=${() => turn(page + 1)}>Next</button></span>` : null}</div>
    <${Table} label="Servers: status, jobs, and used of each resource" head=${["server", "class", "status", "jobs", ...board.resources.map((name) => `${name} used`), "kept by the policy"]}>
      ${shown.map((at) => {
        const one = serverAt(board, at);
        const kept = board.resources.map((name, r) => (one.kept[r] ? `${amount(one.kept[r])} ${name}` : "")).filter(Boolean).join(", ");
        return html`<tr key=${one.name}><th scope="row"><${ServerLink} name=${one.name} /></th><td>${one.kind}</td><td><${State} of=${one.status} text=${one.shown} />${one.reason ? html` <span class="hint"><${Said} text=${one.reason} /></span>` : null}</td>
          <td class="num">${one.jobs}</td>${board.resources.map((_, r) => html`<td class="num"><${Meter} used=${one.used[r]} kept=${one.kept[r]} whole=${one.capacity[r]} /></td>`)}
          <td>${kept || "–"}</td></tr>`;
      })}<//></section>`;
}

const Figure = ({ name, children, hint, title, alert }) => html`<div class=${alert ? "figure figure-alert" : "figure"} title=${title}>
  <dt>${name}</dt><dd>${children}</dd><dd class="hint" title=${hint}>${hint || "\u00a0"}</dd></div>`;

const HOUR = 3600;
const SPARKS = 60; // points of the line of waiting jobs: one a minute

/** Waiting jobs over the last hour, from the store, as a small line. */
function Spark() {
  const { value } = useLoaded(() => get(withQuery("/v1/queues/history", { since: Date.now() / 1000 - HOUR, points: SPARKS })), [], 60);
  if (!value || !value.series.length) return null;
  const sums = value.series[0].length.map((_, at) => value.series.reduce((sum, one) => sum + one.length[at], 0));
  const most = Math.max(1, ...sums);
  const line = sums.map((n, at) => `${(100 * at) / (SPARKS - 1)},${(22 - (20 * n) / most).toFixed(1)}`).join(" ");
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img"
    aria-label=${`Waiting jobs over the last ${span(value.step * SPARKS)}: at most ${number(most)}`}><polyline points=${line} /></svg>`;
}

function Figures({ board, resource }) {
  const counts = board.statuses.map(() => 0);
  let used = 0;
  let whole = 0;
  let kept = 0;
  const sizes = capacities(board);
  board.servers.forEach(([status, , u, k], at) => {
    counts[status] += 1;
    if (status === 3) return;
    used += u[resource];
    kept += k[resource];
    whole += (sizes.get(board.server_classes[at]) || [])[resource] || 0;
  });
  const waiting = Object.values(board.queues).reduce((sum, [n]) => sum + n, 0);
  const oldest = Math.min(...Object.values(board.queues).map(([, , since]) => since ?? Infinity));
  const load = board.load;
  const known = load && load.intensity !== null;
  const name = board.resources[resource];
  const states = ["turning", "draining", "down"].map((text, at) => (counts[at + 1] ? `${number(counts[at + 1])} ${text}` : "")).filter(Boolean).join(", ");
  return html`<dl class="figures">
    <${Figure} name="waiting jobs" hint=${Number.isFinite(oldest) ? `oldest for ${span(board.now - oldest)}` : "none waits"}><a href="#/jobs?state=waiting">${number(waiting)}</a><${Spark} /><//>
    <${Figure} name="running jobs" hint=${several(Object.values(board.queues).filter(([, running]) => running).length, "type")}><a href="#/jobs?state=running">${number(board.live)}</a><//>
    <${Figure} name=${`${name} in use`} hint=${whole ? `${amount(used)} of ${amount(whole)}${kept ? `, ${amount(kept)} kept` : ""}` : "no server has any"}>${whole ? percent(used / whole) : "–"}<//>
    <${Figure} name="servers" alert=${counts[3] > 0} hint=${states || (board.names.length ? "all up" : "none has joined")}>${number(board.names.length)}<//>
    <${Figure} name="load of the last hour" alert=${known && load.outside} title=${!known && load && load.why ? load.why : load && load.share ? `The policy is proven to be stable up to ${percent(load.share)}.` : null}
      hint=${known ? (load.outside ? "above the capacity" : `can grow by ${percent(load.headroom)}`) : "not known yet"}>${known ? percent(load.intensity) : "–"}<//>
  </dl>`;
}

/** What waits, the longest queue first. */
function Waiting({ board }) {
  const rows = Object.entries(board.queues).filter(([, [n, running]]) => n || running).sort(([a, [x, xr]], [b, [y, yr]]) => y - x || yr - xr || (a < b ? -1 : 1));
  const shown = rows.slice(0, MOST_QUEUES);
  return html`<section class="panel aside"><h2>Queues</h2>
    ${rows.length ? html`<${Table} label="Queues now, the longest first" quiet head=${["type", "waiting", "running", "oldest"]}>
      ${shown.map(([name, [n, running, since]]) => html`<tr key=${name}><th scope="row"><a href=${`#/jobs?type=${encodeURIComponent(name)}${n ? "&state=waiting" : ""}`}>${name}</a></th>
        <td class="num">${n ? html`<strong>${number(n)}</strong>` : 0}</td><td class="num">${number(running)}</td><td class="num">${since ? span(board.now - since) : "–"}</td></tr>`)}<//>`
      : html`<p class="hint">No job waits and none runs. <code>slotwise submit</code> submits one.</p>`}
    <p class="hint">${rows.length > shown.length ? `${several(rows.length - shown.length, "type")} more. ` : ""}<a href="#/queues">Over time</a></p></section>`;
}

const LEGEND = [["used", "allocated"], ["kept", "kept by the policy"], ["free", "free"], ["turning", "turning"], ["draining", "draining"], ["down", "down"]];

export function Cluster({ board, route, who }) {
  const [chosen, setChosen] = useState(null);
  const resource = Math.max(0, board.resources.indexOf(route.query.get("resource")));
  const wanted = (route.query.get("find") || "").toLowerCase();
  const state = route.query.get("status") || "";
  const whole = order(board);
  const places = useMemo(
    () => whole.filter((at) => (!wanted || board.names[at].toLowerCase().includes(wanted)) && (!state || board.statuses[board.servers[at][0]] === state)),
    [whole, wanted, state, state ? board.seq : 0],
  );
  const cells = route.query.get("cells") || (places.length <= NAMED ? "names" : "small");
  useReady(true);
  return html`<div class="bar top"><h1>Cluster</h1><${PolicyChange} board=${board} who=${who} /></div>
    <${Figures} board=${board} resource=${resource} />
    <div class="bar filters">
      <${Choice} label="Resource" value=${board.resources[resource]} options=${board.resources.map((name) => [name, name])}
        onChange=${(name) => setQuery(route, { resource: name === board.resources[0] ? null : name })} />
      <${Choice} label="Cells" value=${cells} options=${[["names", "with names"], ["small", "small"]]} onChange=${(key) => setQuery(route, { cells: key })} />
      <label>Find <input type="search" value=${route.query.get("find") || ""} placeholder="server"
        onInput=${(event) => setQuery(route, { find: event.target.value, page: null })} /></label>
      <label>Status <select value=${state} onChange=${(event) => setQuery(route, { status: event.target.value, page: null })}>
        <option value="">all</option>${board.statuses.map((one) => html`<option value=${one}>${one === "lost" ? "down" : one}</option>`)}</select></label>
    </div>
    <ul class="legend" aria-label="Legend">${LEGEND.map(([key, text]) => html`<li><span class=${`swatch swatch-${key}`}></span>${text}</li>`)}</ul>
    <div class="with-aside"><div>${places.length ? html`<${Cells} board=${board} resource=${resource} named=${cells === "names"} chosen=${chosen} setChosen=${setChosen} places=${places} />
      <${Chosen} board=${board} place=${chosen} resource=${resource} />` : html`<p class="panel hint">${board.names.length ? "No server matches." : "No server has joined yet."}</p>`}</div>
      <${Waiting} board=${board} /></div>
    <${ServerTable} board=${board} places=${places} resource=${resource} route=${route} />`;
}
