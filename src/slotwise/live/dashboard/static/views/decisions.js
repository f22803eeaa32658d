// Decisions: the journal, live, newest first; and back in time, page by page.

import { useEffect, useRef, useState } from "preact/hooks";
import { get, withQuery } from "../api.js";
import { number } from "../format.js";
import { setQuery } from "../route.js";
import { html, Problem, Time, useReady, Waiting } from "../ui.js";
import { sentence } from "./sentences.js";

const PAGE = 60;
const MOST = 200; // rows on the page: older ones are a page back
const SEARCHES = 10; // requests for one page at most: each reads a bounded part of the journal
const AT_ONCE = 25; // rows that are fetched at a time: with hundreds a second nobody can read them, and traffic stays small
const KINDS = { all: "everything", starts: "rows that start jobs", changes: "changes of servers and cluster", trouble: "failures and requeues" };
/** A page of rows of a kind. Where they are rare, the service is asked several times. */
async function page(before, kind) {
  const rows = [];
  let found = { next: before };
  let last = null;
  for (let at = 0; at < SEARCHES && rows.length < PAGE && (at === 0 || found.next !== null); at += 1) {
    found = await get(withQuery("/v1/journal", { before: found.next, limit: PAGE - rows.length, kind }));
    rows.push(...found.rows);
    last ??= found.last;
  }
  return { rows, next: found.next, last };
}

export function Decisions({ board, route }) {
  const before = route.query.get("before");
  const kind = KINDS[route.query.get("kind")] ? route.query.get("kind") : "all";
  const [rows, setRows] = useState(null);
  const [error, setError] = useState(null);
  const [paused, setPaused] = useState(false);
  const [missed, setMissed] = useState(0);
  const [older, setOlder] = useState(null); // where the next page begins
  const newest = useRef(0);
  const busy = useRef(false);
  const shownKind = useRef(kind);
  shownKind.current = kind;
  const live = !before && !paused;
  useEffect(() => {
    let over = false;
    setRows(null);
    page(before, kind).then(
      (found) => { if (!over) { setRows(found.rows); setOlder(found.next); newest.current = found.last; setMissed(0); setError(null); } },
      (failed) => { if (!over) setError(failed); },
    );
    return () => { over = true; };
  }, [before, kind]);
  useEffect(() => {
    if (!live || rows === null || busy.current || board.seq <= newest.current) return;
    busy.current = true;
    const asked = kind;
    get(withQuery("/v1/journal", { after: newest.current, limit: AT_ONCE, kind })).then((found) => {
      if (asked !== shownKind.current) return; // the filter was changed meanwhile
      if (found.rows.length === AT_ONCE) setMissed((n) => n + Math.max(0, found.rows[AT_ONCE - 1].seq - newest.current - 1));
      newest.current = Math.max(newest.current, found.last);
      if (found.rows.length) setRows((was) => [...found.rows, ...was.filter((row) => row.seq < found.rows[found.rows.length - 1].seq)].slice(0, MOST));
      setError(null);
    }, setError).finally(() => { busy.current = false; });
  }, [board.seq, live, rows === null, kind]);
  useReady(rows !== null);
  const shown = rows || [];
  return html`<div class="bar top"><h1>Decisions</h1></div>
    <div class="bar">
      <button type="button" aria-pressed=${String(paused)} disabled=${Boolean(before)} onClick=${() => setPaused(!paused)}>${paused ? "Go on" : "Pause"}</button>
      <label>Show <select value=${kind} onChange=${(event) => setQuery(route, { kind: event.target.value === "all" ? null : event.target.value, before: null })}>
        ${Object.entries(KINDS).map(([key, text]) => html`<option value=${key}>${text}</option>`)}</select></label>
      ${before ? html`<button type="button" onClick=${() => setQuery(route, { before: null })}>Newest</button>` : null}
      <span class="hint">${before ? `before row ${number(Number(before))}` : paused ? "paused" : "live"}${missed && !before ? `; ${number(missed)} rows came too fast to show: “Older” has them` : ""}</span>
    </div>
    <${Problem} error=${error} />
    ${rows ? html`<section class="panel" aria-label="Journal"><ol class="rows">${shown.map((row) => html`<li key=${row.seq}><span class="hint" title=${`row ${number(row.seq)}`}><${Time} at=${row.time} /></span><span>${sentence(row)}</span></li>`)}</ol>
      ${shown.length ? null : html`<p class="hint">${older === null ? "There is no row of this kind." : "No row of this kind in this part of the journal; “Older” searches on."}</p>`}</section>
      <div class="bar"><button type="button" disabled=${older === null} onClick=${() => setQuery(route, { before: rows.length === MOST ? rows[MOST - 1].seq : older })}>Older</button></div>` : html`<${Waiting} />`}`;
}
