// One job: what it is, what has happened to it, why it waits, when it should start, and what it writes.

import { useEffect, useRef, useState } from "preact/hooks";
import { call, get, offers, post } from "../api.js";
import { amounts, number, percent, plainOutput, several, span } from "../format.js";
import { Confirm, html, JobLink, Problem, Said, ServerLink, State, Table, Time, useLoaded, useReady, Waiting } from "../ui.js";
import { sentence } from "./sentences.js";

const OVER = ["done", "failed", "cancelled", "lost"];
const MOST = 200000; // characters of output that the page keeps

/** The output of a job as it is written. */
function Output({ job }) {
  const [text, setText] = useState("");
  const [cut, setCut] = useState(false);
  const box = useRef(null);
  const at = useRef(0);
  useEffect(() => {
    let over = false;
    let timer = 0;
    const decoder = new TextDecoder();
    at.current = 0;
    setText("");
    const read = async () => {
      try {
        const answer = await call("GET", `/v1/jobs/${job.id}/output?offset=${at.current}`);
        const piece = decoder.decode(await answer.arrayBuffer(), { stream: true });
        const next = Number(answer.headers.get("x-next-offset"));
        if (over) return;
        if (next > at.current) {
          at.current = next;
          setText((was) => {
            const whole = was + piece;
            if (whole.length > MOST) setCut(true);
            return whole.slice(-MOST);
          });
        }
        if (next > at.current - 1 && piece) { timer = setTimeout(read, 200); return; }
        if (OVER.includes(answer.headers.get("x-state"))) return;
      } catch (error) {
        if (error.status !== 0) return;
      }
      if (!over) timer = setTimeout(read, 1500);
    };
    read();
    return () => { over = true; clearTimeout(timer); };
  }, [job.id, job.attempt, OVER.includes(job.state)]);
  useEffect(() => {
    const pre = box.current;
    if (pre && pre.scrollHeight - pre.scrollTop - pre.clientHeight < 80) pre.scrollTop = pre.scrollHeight;
  }, [text]);
  return html`<section class="panel"><h2>Output</h2>${cut ? html`<p class="hint">Only the newest part is shown; <code>slotwise logs ${job.id}</code> prints all.</p>` : null}
    ${text ? html`<pre class="output" ref=${box} tabindex="0" aria-label="Output">${plainOutput(text)}</pre>` : html`<p class="hint">Nothing was written${OVER.includes(job.state) ? "." : " yet."}</p>`}</section>`;
}

/** Why a waiting job waits, and what each server lacks. */
function Why({ job }) {
  const explained = useLoaded(() => get(`/v1/jobs/${job.id}/explain`), [job.id, job.state], 3);
  const refused = useLoaded(() => (job.state === "waiting" ? get(`/v1/jobs/${job.id}/refusals`) : Promise.resolve(null)), [job.id, job.state], 3);
  const found = refused.value;
  return html`<section class=${`panel ${job.state === "waiting" ? "urgent" : ""}`}><h2>${{ waiting: "Why it waits", held: "Why it is held" }[job.state] || "Where it is"}</h2>
    ${explained.value ? html`<p>${explained.value.text}</p>` : html`<${Waiting} error=${explained.error} />`}
    ${found && found.state === "waiting" ? html`<p>It asks for ${amounts(found.demand)}. Of all servers:</p>
      <ul>${Object.entries(found.counts).map(([why, count]) => html`<li>${why}: ${several(count, "server")}</li>`)}</ul>
      <${Table} label="Servers nearest to taking it" head=${["server", "why not", "lacks", "free"]}>
        ${found.servers.slice(0, 12).map((one) => html`<tr key=${one.server}><th scope="row" class="break"><${ServerLink} name=${one.server} /></th><td>${one.why}</td>
          <td>${Object.keys(one.lacks).length ? amounts(one.lacks) : "–"}</td><td>${amounts(one.free)}</td></tr>`)}<//>` : null}</section>`;
}

/** When a waiting job should start, and how often forecasts like this one came true. */
function Forecast({ job }) {
  const { value, error } = useLoaded(() => (offers("forecasts") ? get(`/v1/forecast/${job.id}`) : Promise.resolve(null)), [job.id], 5);
  let shown;
  if (!offers("forecasts")) shown = html`<p class="hint">Not known yet: this service makes no forecasts.</p>`;
  else if (error) shown = html`<p class="hint">${error.message}</p>`;
  else if (!value) shown = html`<p class="hint">Loading …</p>`;
  else if (value.p50 === null) shown = html`<p>Not known yet${value.reason ? `: ${value.reason.replace(/^not known yet: /, "")}` : ""}.</p>`;
  else {
    const at = (seconds) => value.as_of + seconds;
    shown = html`<dl class="facts"><dt>likely</dt><dd>in ${span(value.p50)} (<${Time} at=${at(value.p50)} />)</dd>
      <dt>8 times in 10</dt><dd>${value.p90 === null ? html`after <${Time} at=${at(value.p10)} />; until when is not known` : html`between <${Time} at=${at(value.p10)} /> and <${Time} at=${at(value.p90)} />`}</dd></dl>
      <p class="hint">${value.of ? `${percent(value.coverage)} of the last ${number(value.of)} starts with such a forecast lay within their 80 % interval.` : "No forecast like this could be checked yet."}</p>`;
  }
  return html`<section class="panel urgent"><h2>When it should start</h2>${shown}</section>`;
}

function History({ job }) {
  const { value, error } = useLoaded(() => get(`/v1/jobs/${job.id}/history`), [job.id, job.state, job.attempt], 0);
  return html`<section class="panel"><h2>What has happened</h2>${value ? html`<ol class="rows">${value.map((row) => html`<li key=${row.seq}>
    <span class="hint" title=${`row ${row.seq}`}><${Time} at=${row.time} /></span><span>${sentence(row, job.id)}</span></li>`)}</ol>` : html`<${Waiting} error=${error} />`}</section>`;
}

function Actions({ job, who, board, reload }) {
  const [open, setOpen] = useState(false);
  if (who.role === "read" || OVER.includes(job.state)) return null;
  const waits = ["held", "waiting"].includes(job.state);
  const act = async () => { await post(`/v1/jobs/${job.id}/${waits ? "cancel" : "stop"}`); reload(); };
  const type = board.types.find((one) => one.name === job.type);
  const size = type ? Object.fromEntries(board.resources.map((name, r) => [name, type.demand[r]])) : {};
  const frees = amounts({ ...size, ...job.needs });
  const [waiting] = board.queues[job.type] || [0];
  return html`<button type="button" class="danger" onClick=${() => setOpen(true)}>${waits ? "Cancel …" : "Stop …"}</button>
    ${open ? html`<${Confirm} title=${`${waits ? "Cancel" : "Stop"} job ${job.id}`} action=${waits ? "Cancel the job" : "Stop the job"} danger onClose=${() => setOpen(false)} onDo=${act}>
      <p><strong><${Said} text=${job.name || `job ${job.id}`} /></strong>, type ${job.type}, tenant ${job.tenant}.</p>
      ${waits ? html`<ul><li>It has waited for ${span(board.now - job.submitted)}${job.state === "held" ? ". It is in no queue." : html` and leaves its queue of ${several(waiting, "job")}.`}</li><li>It never starts, and cannot be brought back: it has to be submitted again.</li></ul>`
        : html`<ul><li>It has run for ${span(board.now - (job.started ?? job.placed))} on ${job.server}; that work is lost.</li>
          <li>It is asked to end (SIGTERM) and killed a little later. It ends as cancelled and does not start again.</li>
          <li>${frees} on ${job.server} ${frees.includes(",") ? "become" : "becomes"} free; ${several(waiting, "job")} of its type ${waiting === 1 ? "waits" : "wait"}.</li></ul>`}<//>` : null}`;
}

export function Job({ route, who, board }) {
  const id = Number(route.detail);
  const { value: job, error, reload } = useLoaded(() => get(`/v1/jobs/${encodeURIComponent(route.detail)}`), [route.detail], 2);
  useReady(job !== null || error !== null);
  if (!job) return html`<div class="bar top"><h1>Job ${Number.isFinite(id) ? id : ""}</h1></div><${Waiting} error=${error} />`;
  const labels = Object.entries(job.labels || {});
  return html`<div class="bar top"><h1>Job ${job.id}${job.name ? html`: <${Said} text=${job.name} />` : ""}</h1><${State} of=${job.state} />
      <${Actions} job=${job} who=${who} board=${board} reload=${reload} /></div>
    <${Problem} error=${error} />
    <div class="columns"><div><section class="panel"><h2>What it is</h2><dl class="facts">
      <dt>type</dt><dd>${job.type}</dd><dt>tenant</dt><dd>${job.tenant}</dd>
      <dt>command</dt><dd><code><${Said} text=${(job.argv || []).join(" ") || "–"} /></code></dd>
      <dt>needs</dt><dd>${Object.keys(job.needs || {}).length ? amounts(job.needs) : "as its type"}</dd>
      ${Object.keys(job.requires || {}).length ? html`<dt>requires</dt><dd>${Object.entries(job.requires).map(([key, some]) => `${key} in ${some.join(", ")}`).join("; ")}</dd>` : null}
      ${labels.length ? html`<dt>labels</dt><dd><${Said} text=${labels.map(([key, text]) => `${key}=${text}`).join(", ")} /></dd>` : null}
      <dt>submitted</dt><dd><${Time} at=${job.submitted} /></dd>
      <dt>placed</dt><dd>${job.placed ? html`<${Time} at=${job.placed} /> after ${span(job.placed - job.submitted)}` : `${job.ended ? "never; waited" : "not yet; has waited"} ${span((job.ended ?? board.now) - job.submitted)}`}</dd>
      <dt>started</dt><dd><${Time} at=${job.started} /></dd>
      <dt>ended</dt><dd><${Time} at=${job.ended} />${job.ended && job.started ? ` after ${span(job.ended - job.started)}` : ""}</dd>
      <dt>server</dt><dd>${job.server ? html`<${ServerLink} name=${job.server} />` : "–"}</dd><dt>attempt</dt><dd>${job.attempt}</dd>
      ${job.exit_code === null ? null : html`<dt>exit code</dt><dd>${job.exit_code}</dd>`}${job.reason ? html`<dt>reason</dt><dd><${Said} text=${job.reason} /></dd>` : null}
      ${job.array === null ? null : html`<dt>array</dt><dd><${JobLink} id=${job.array} />, index ${job.array_index}</dd>`}
      <dt>if its server is lost</dt><dd>${job.on_loss === "requeue" ? "it is executed again" : "it ends as lost"}</dd></dl></section>
    <${History} job=${job} /></div>
    <div>${job.state === "waiting" ? html`<${Forecast} job=${job} />` : null}
    ${OVER.includes(job.state) ? null : html`<${Why} job=${job} />`}
    <${Output} job=${job} /></div></div>`;
}
