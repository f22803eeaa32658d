// Decisions: the journal, live, newest first; and back in time, page by page.

import { useEffect, useRef, useState } from "preact/hooks";
import { get, withQuery } from "../api.js";
import { number } from "../format.js";
import { setQuery } from "../route.js";
import { html, Problem, Time, useReady, Waiting } from "../ui.js";
import { sentence } from "./sentences.js";

const PAGE = 60;
const AT_ONCE = 25; // rows that are fetched at a time: with hundreds a second nobody can read them, and traffic stays small
const KINDS = { all: "everything", starts: "only rows that start jobs", changes: "servers and cluster", trouble: "failures and requeues" };
const OF = {
  starts: (row) => row.placements.length > 0,
  changes: (row) => ["join", "drain", "resume", "remove", "fail", "change", "epoch"].includes(row.event.event),
  trouble: (row) => ["requeue", "fail", "stop"].includes(row.event.event) || Boolean(row.note && (row.note.fault || row.note.exit_code)),
};

export function Decisions({ board, route }) {
  const before = route.query.get("before");
  const kind = KINDS[route.query.get("kind")] ? route.query.get("kind") : "all";
  const [rows, setRows] = useState(null);
  const [error, setError] = useState(null);
  const [paused, setPaused] = useState(false);
  const [missed, setMissed] = useState(0);
  const newest = useRef(0);
  const busy = useRef(false);
  const live = !before && !paused;
  useEffect(() => {
    let over = false;
    get(withQuery("/v1/journal", { before, limit: PAGE })).then(
      (found) => { if (!over) { setRows(found.rows); newest.current = found.rows.length ? found.rows[0].seq : 0; setMissed(0); setError(null); } },
      (failed) => { if (!over) setError(failed); },
    );
    return () => { over = true; };
  }, [before]);
  useEffect(() => {
    if (!live || rows === null || busy.current || board.seq <= newest.current) return;
    busy.current = true;
    get(withQuery("/v1/journal", { after: newest.current, limit: AT_ONCE })).then((found) => {
      if (found.rows.length) {
        const last = found.rows[found.rows.length - 1].seq;
        if (last > newest.current + 1 && found.rows.length === AT_ONCE) setMissed((n) => n + last - newest.current - 1);
        newest.current = found.rows[0].seq;
        setRows((was) => [...found.rows, ...was].slice(0, 200));
      }
      setError(null);
    }, setError).finally(() => { busy.current = false; });
  }, [board.seq, live, rows === null]);
  useReady(rows !== null);
  const shown = (rows || []).filter(OF[kind] || (() => true));
  return html`<h1>Decisions</h1>
    <div class="bar">
      <button type="button" aria-pressed=${String(paused)} disabled=${Boolean(before)} onClick=${() => setPaused(!paused)}>${paused ? "Go on" : "Pause"}</button>
      <label>Show <select value=${kind} onChange=${(event) => setQuery(route, { kind: event.target.value === "all" ? null : event.target.value })}>
        ${Object.entries(KINDS).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label>
      ${before ? html`<button type="button" onClick=${() => setQuery(route, { before: null })}>Newest</button>` : null}
      <span class="hint">${before ? `before row ${number(Number(before))}` : paused ? "paused" : "live"}${missed && !before ? `; ${number(missed)} rows came too fast to show: page back to read them` : ""}</span>
    </div>
    <${Problem} error=${error} />
    ${rows ? html`<section class="panel" aria-label="Journal"><ol class="rows">${shown.map((row) => html`<li key=${row.seq}><span class="hint"><${Time} at=${row.time} /> · row ${number(row.seq)}</span><span>${sentence(row)}</span></li>`)}</ol>
      ${shown.length ? null : html`<p class="hint">No row of this kind among the newest.</p>`}</section>
      <div class="bar"><button type="button" disabled=${!rows.length} onClick=${() => setQuery(route, { before: rows[rows.length - 1].seq })}>Older</button></div>` : html`<${Waiting} />`}`;
}
