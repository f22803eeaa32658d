// One server: what it holds, what it does and why, and what has run on it.

import { useState } from "preact/hooks";
import { get, offers, post, withQuery } from "../api.js";
import { serverAt } from "../board.js";
import { amount, changeOfWaits, several, span } from "../format.js";
import { Confirm, html, JobLink, Problem, Said, State, Table, Time, useLoaded, useReady, Waiting } from "../ui.js";
import { Gantt, shownFrom, useEnds } from "./gantt.js";

const HOUR = 3600;

function Actions({ one, who, jobs, board }) {
  const [open, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const [effect, setEffect] = useState(null);
  if (who.role !== "operate" || one.status === "lost") return null;
  const back = one.status === "draining";
  const path = `/v1/servers/${encodeURIComponent(one.name)}/${back ? "resume" : "drain"}`;
  const free = board.resources.map((name, r) => `${amount(Math.max(0, one.capacity[r] - one.used[r]))} ${name}`).join(", ");
  const estimate = async () => {
    setEffect("…");
    try {
      const found = await post("/v1/whatif", { drain: [one.name], hours: 1 });
      const change = found.change && found.change.wait;
      setEffect(change ? `Over the next hour, mean waits become ${changeOfWaits(change)}.` : found.reason || "not known yet");
    } catch (error) {
      setEffect(error.message);
    }
  };
  return html`<button type="button" onClick=${() => { setEffect(null); setOpen(true); }}>${back ? "Resume …" : "Drain …"}</button>
    ${open ? html`<${Confirm} title=${`${back ? "Resume" : "Drain"} ${one.name}`} action=${back ? "Resume the server" : "Drain the server"} onClose=${() => setOpen(false)}
      onDo=${() => post(path, back ? undefined : { reason: reason || "asked for" })}>
      ${back ? html`<ul><li>It takes jobs again at once: ${free} are free for waiting jobs.</li></ul>`
        : html`<ul><li>${several(one.jobs, "job")} on it ${one.jobs === 1 ? "goes" : "go"} on until ${one.jobs === 1 ? "it ends" : "they end"}${jobs && jobs.length ? `; the oldest has run for ${span(board.now - Math.min(...jobs.map((job) => job.started ?? board.now)))}` : ""}.</li>
          <li>${free} are free on it now and take no more jobs.</li><li>It can be resumed at any time.</li></ul>
          <label>Reason <input value=${reason} maxlength="500" placeholder="shown to everyone" onInput=${(event) => setReason(event.target.value)} /></label>
          ${offers("whatif") ? html`<p><button type="button" onClick=${estimate}>Estimate the effect on waits</button> <span role="status">${effect}</span></p>` : null}`}<//>` : null}`;
}

export function Server({ route, who, board }) {
  const name = route.detail;
  const place = board.index.get(name);
  const known = place !== undefined;
  const one = known ? serverAt(board, place) : null;
  const version = known ? `${one.status} ${one.jobs}` : "";
  const explained = useLoaded(() => known ? get(`/v1/servers/${encodeURIComponent(name)}/explain`) : null, [name, version], 5);
  const jobs = useLoaded(() => get(withQuery("/v1/jobs", { server: name, state: ["placed", "running"], limit: 500 })), [name, version], 5);
  const [hours, setHours] = useState(1);
  const spans = useLoaded(() => get(withQuery("/v1/timeline", { server: name, since: Date.now() / 1000 - hours * HOUR })), [name, version, hours], 10);
  const ends = useEnds();
  useReady(!known || jobs.value !== null || jobs.error !== null);
  if (!known) return html`<div class="bar top"><h1>Server ${name}</h1></div><p class="problem" role="alert">There is no server of this name. <a href="#/">All servers</a></p>`;
  return html`<div class="bar top"><h1>Server ${name}</h1><${State} of=${one.status} text=${one.shown} /><${Actions} one=${one} who=${who} jobs=${jobs.value && jobs.value.jobs} board=${board} /></div>
    <div class="columns uneven"><section class="panel"><h2>What it does</h2>
      ${explained.value ? html`<p>${explained.value.text}</p>` : html`<${Waiting} error=${explained.error} />`}
      ${one.reason ? html`<p>Reason: <${Said} text=${one.reason} /></p>` : null}
      <${Table} label="Resources" head=${["resource", "allocated", "kept", "free", "capacity"]}>
        ${board.resources.map((resource, r) => [resource, r]).filter(([, r]) => one.capacity[r]).map(([resource, r]) => html`<tr key=${resource}><th scope="row">${resource}</th><td class="num">${amount(one.used[r])}</td><td class="num">${amount(one.kept[r])}</td>
          <td class="num">${amount(Math.max(0, one.capacity[r] - one.used[r] - one.kept[r]))}</td><td class="num">${amount(one.capacity[r])}</td></tr>`)}<//>
      <p class="hint">Class ${one.kind}.</p></section>
    <section class="panel"><h2>What it holds</h2><${Problem} error=${jobs.error} />
      ${jobs.value && !jobs.value.jobs.length ? html`<p class="hint">No job.</p>` : jobs.value ? html`<${Table} label=${several(jobs.value.jobs.length, "job")} head=${["job", "name", "state", "type", "tenant", "started", "for"]}>
        ${jobs.value.jobs.map((job) => html`<tr key=${job.id}><th scope="row"><${JobLink} id=${job.id} /></th><td class="break"><${Said} text=${job.name || "–"} /></td><td><${State} of=${job.state} /></td><td>${job.type}</td><td>${job.tenant}</td>
          <td><${Time} at=${job.started} /></td><td class="num">${job.started === null ? "–" : span(board.now - job.started)}</td></tr>`)}<//>` : null}</section></div>
    <section class="panel"><div class="bar"><h2>Timeline</h2><label>Window <select value=${hours} onChange=${(event) => setHours(Number(event.target.value))}>
      <option value="0.25">15 minutes</option><option value="1">1 hour</option><option value="6">6 hours</option><option value="24">24 hours</option></select></label></div>
      ${spans.value ? html`<${Gantt} rows=${[name]} spans=${spans.value.spans} ...${shownFrom(spans.value, true)} now=${board.now} types=${board.types} forecasts=${ends} high=${200} />` : html`<${Waiting} error=${spans.error} />`}</section>`;
}
