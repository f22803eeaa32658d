// Rows of the journal as sentences.

import { amounts, span } from "../format.js";
import { html, JobLink, Said, ServerLink } from "../ui.js";

const placed = ([job, server, attempt]) =>
  html`job <${JobLink} id=${job} /> starts on <${ServerLink} name=${server} />${attempt > 1 ? ` (attempt ${attempt})` : ""}`;

/** What a row says happened; the kinds of rows are those of the journal. */
function happened({ event: row, note }) {
  const job = row.job === undefined ? null : html`<${JobLink} id=${row.job} />`;
  const server = row.server === undefined ? null : html`<${ServerLink} name=${row.server} />`;
  const why = note && note.reason ? html`: <${Said} text=${note.reason} />` : "";
  switch (row.event) {
    case "submit": return html`job ${job} of type ${row.type} comes${row.demand ? ` (asks for ${amounts(Object.fromEntries(Object.entries(row.demand).map(([k, v]) => [k, Number(v)])))})` : ""}`;
    case "started": return html`job ${job} runs`;
    case "complete": return html`job ${job} ends ${note ? `as ${note.state}, exit code ${note.exit_code}` : ""}${why}`;
    case "stop": return html`job ${job} leaves its server${note && note.state ? ` as ${note.state}` : ""}${why}`;
    case "stop-asked": return html`job ${job} is asked to end`;
    case "held": return html`${row.jobs > 1 ? `jobs ${row.job} to ${row.job + row.jobs - 1} are held` : html`job ${job} is held`}`;
    case "dropped": return html`job ${job} ends as ${row.state} and never started${row.reason ? `: ${row.reason}` : ""}`;
    case "cancel": return html`job ${job} is cancelled`;
    case "requeue": return html`job ${job} goes back to its queue${why}`;
    case "join": return html`server ${server} joins (class ${row.server_class ?? row.class ?? ""})`;
    case "drain": return html`server ${server} takes no more jobs${why}`;
    case "resume": return html`server ${server} takes jobs again`;
    case "remove": return html`server ${server} is removed`;
    case "fail": return html`server ${server} has failed${why}`;
    case "tick": return html`the policy's clock`;
    case "change": return html`the cluster changes: ${["policy", "options", "types", "classes"].filter((key) => key in row).map((key) => (key === "policy" ? `policy ${row.policy}` : key)).join(", ") || "types"}`;
    case "epoch": return html`a new version decides otherwise; it goes on from the recorded facts`;
    default: return html`${String(row.event)}`;
  }
}

/** A row as a sentence: what happened, and what was decided. With `only`, other jobs that the row started are left out. */
export function sentence(row, only = null) {
  const starts = row.placements.filter(([job]) => only === null || job === only);
  const waits = row.event.event === "submit" && !row.placements.some(([job]) => job === row.event.job);
  const fault = row.note && row.note.fault ? html` <strong class="up">the policy failed: ${row.note.fault}</strong>` : null;
  const own = only === null || row.event.job === only || row.event.job === undefined || !starts.length;
  return html`${own ? happened(row) : html`<span class="hint">${happened(row)}</span>`}${waits ? " and waits" : null}${starts.length ? " → " : null}
    ${starts.map((one, at) => html`${at ? ", " : ""}${placed(one)}`)}${fault}`;
}

export { span };
