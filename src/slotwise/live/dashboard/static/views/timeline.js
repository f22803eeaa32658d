// The timeline: what has run where, what runs, and until when by forecast.

import { get, offers, withQuery } from "../api.js";
import { order } from "../board.js";
import { setQuery } from "../route.js";
import { html, useLoaded, useReady, Waiting } from "../ui.js";
import { Gantt, shownFrom, useEnds } from "./gantt.js";

const ROWS = 20;
const WINDOWS = { "0.1": "6 minutes", 0.25: "15 minutes", 1: "1 hour", 6: "6 hours", 24: "24 hours", 168: "7 days" };

export function Timeline({ board, route }) {
  const hours = Number(route.query.get("hours")) || 0.25;
  const wanted = (route.query.get("find") || "").toLowerCase();
  const names = order(board).map((at) => board.names[at]).filter((name) => !wanted || name.toLowerCase().includes(wanted));
  const pages = Math.max(1, Math.ceil(names.length / ROWS));
  const page = Math.min(pages - 1, Number(route.query.get("page")) || 0);
  const rows = names.slice(page * ROWS, (page + 1) * ROWS);
  const end = route.query.get("until") ? Number(route.query.get("until")) : null;
  const { value, error } = useLoaded(
    () => (rows.length ? get(withQuery("/v1/timeline", { server: rows, since: (end || Date.now() / 1000) - hours * 3600, until: end })) : Promise.resolve({ spans: [], since: 0, until: 1, complete: true })),
    [rows.join("\n"), hours, end], hours > 2 ? 30 : 5,
  );
  const forecasts = useEnds();
  useReady(value !== null || error !== null);
  const move = (by) => setQuery(route, { until: Math.round((end || Date.now() / 1000) + by * hours * 3600) });
  return html`<div class="bar top"><h1>Timeline</h1></div>
    <div class="bar">
      <label>Window <select value=${String(hours)} onChange=${(event) => setQuery(route, { hours: event.target.value })}>
        ${Object.entries(WINDOWS).sort((a, b) => a[0] - b[0]).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label>
      <span class="pager"><button type="button" onClick=${() => move(-0.5)}>Earlier</button>
        <button type="button" disabled=${!end} onClick=${() => move(0.5)}>Later</button><button type="button" disabled=${!end} onClick=${() => setQuery(route, { until: null })}>Now</button></span>
      <label>Find <input type="search" value=${route.query.get("find") || ""} placeholder="server" onInput=${(event) => setQuery(route, { find: event.target.value, page: null })} /></label>
      ${pages > 1 ? html`<span class="pager"><button type="button" disabled=${page === 0} onClick=${() => setQuery(route, { page: page - 1 || null })}>Previous servers</button>
        <button type="button" disabled=${page >= pages - 1} onClick=${() => setQuery(route, { page: page + 1 })}>Next servers</button> <span class="hint">page ${page + 1} of ${pages}</span></span>` : null}
    </div>
    ${value ? html`<${Gantt} rows=${rows} spans=${value.spans} ...${shownFrom(value, !end)} now=${board.now} types=${board.types} forecasts=${forecasts} />
      ${value.complete ? null : html`<p class="hint">There were more jobs than are drawn: choose a shorter window.</p>`}` : html`<${Waiting} error=${error} />`}
    <p class="hint">The line is now. Right of it, running jobs reach to when they should end: darker to the middle, lighter to the time by which 9 in 10 end${offers("forecasts") ? "" : " (this service makes no forecasts)"}.</p>`;
}
