// Jobs: searched and filtered by the service, page by page; all conditions are in the URL.

import { useEffect, useState } from "preact/hooks";
import { get, withQuery } from "../api.js";
import { setQuery } from "../route.js";
import { html, JobLink, Problem, Said, ServerLink, State, Table, Time, useLoaded, useReady, Waiting } from "../ui.js";
import { span } from "../format.js";

const STATES = ["held", "waiting", "placed", "running", "done", "failed", "cancelled", "lost"];
const PAGE = 50;
const SOON = 300; // milliseconds after the last key before the service is asked

/** An input whose value goes into the URL when the user pauses. */
function Field({ route, name, label, placeholder }) {
  const [text, set] = useState(route.query.get(name) || "");
  useEffect(() => { set(route.query.get(name) || ""); }, [route.query.get(name)]);
  useEffect(() => {
    if (text === (route.query.get(name) || "")) return undefined;
    const timer = setTimeout(() => setQuery(route, { [name]: text, after: null }), SOON);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<label>${label} <input type="search" value=${text} placeholder=${placeholder} onInput=${(event) => set(event.target.value)} /></label>`;
}

/** How long a job waited, or has waited by now. */
const waited = (job, now) => (job.placed ?? job.ended ?? now) - job.submitted;

export function Jobs({ route, board }) {
  const ask = Object.fromEntries(["search", "state", "type", "tenant", "server", "array", "after"].map((name) => [name, route.query.get(name)]));
  const { value, error } = useLoaded(() => get(withQuery("/v1/jobs", { ...ask, limit: PAGE })), [JSON.stringify(ask)], ask.after ? 0 : 3);
  useReady(value !== null || error !== null);
  const types = board.types.map((one) => one.name);
  return html`<div class="bar top"><h1>Jobs</h1></div>
    <form class="bar filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <${Field} route=${route} name="search" label="Find" placeholder="name, number" />
      <label>State <select value=${ask.state || ""} onChange=${(event) => setQuery(route, { state: event.target.value, after: null })}>
        <option value="">all</option>${STATES.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
      <label>Type <select value=${ask.type || ""} onChange=${(event) => setQuery(route, { type: event.target.value, after: null })}>
        <option value="">all</option>${types.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
      <${Field} route=${route} name="tenant" label="Tenant" placeholder="name" />
      <${Field} route=${route} name="server" label="Server" placeholder="name" />
      <button type="button" onClick=${() => { location.hash = "#/jobs"; }}>Clear</button>
    </form>
    <${Problem} error=${error} />
    ${value && !value.jobs.length ? html`<p class="panel hint">${Object.values(ask).some(Boolean) ? "No job meets these conditions." : "No job has been submitted yet."}</p>` : value ? html`<${Table} label=${`Jobs, newest first${ask.after ? ` (older than job ${ask.after})` : ""}`}
      head=${["job", "name", "state", "type", "tenant", "server", "submitted", "waited", "ran", "exit"]}>
      ${value.jobs.map((job) => html`<tr key=${job.id}><th scope="row"><${JobLink} id=${job.id} /></th><td class="break"><${JobLink} id=${job.id}><${Said} text=${job.name || "–"} /><//></td>
        <td><${State} of=${job.state} /></td><td>${job.type}</td><td>${job.tenant}</td><td>${job.server ? html`<${ServerLink} name=${job.server} />` : "–"}</td>
        <td><${Time} at=${job.submitted} /></td><td class="num">${span(waited(job, board.now))}</td>
        <td class="num">${job.started === null ? "–" : span((job.ended ?? board.now) - job.started)}</td><td class="num">${job.exit_code ?? "–"}</td></tr>`)}<//>
      <div class="bar"><button type="button" disabled=${!ask.after} onClick=${() => setQuery(route, { after: null })}>Newest</button>
        <button type="button" disabled=${value.next === null} onClick=${() => setQuery(route, { after: value.next })}>Older</button></div>`
      : html`<${Waiting} error=${null} />`}`;
}
