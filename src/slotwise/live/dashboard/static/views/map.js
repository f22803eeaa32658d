// The map of the cluster: every server as a cell on one canvas, by class. Only rows that are seen are drawn.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { capacities } from "../board.js";
import { amount, amounts, several } from "../format.js";
import { colours, fitting, html, sharp, useWidth } from "../ui.js";

const SMALL = 5; // pixels: the least size of a cell that can still be told apart
const ROW_NAMES = 90; // pixels: names of rows beside small cells are shortened to this
const LARGE = 40; // pixels: larger cells without names look empty
const LINE = 14; // pixels: the height of a name
const HEADING = 20; // pixels above the cells of a class
const MOST_HEADINGS = 12; // classes; with more, headings would take more room than cells
const FONT = "12px system-ui, sans-serif";
const SMALL_FONT = "11px system-ui, sans-serif";
const LOOKS = ["free", "used", "kept", "used-soft", "kept-soft", "down-soft", "turning", "draining", "down", "surface", "line", "text", "quiet", "accent"];

/** The places of servers, a list for each class, in the order in which they are drawn. */
function byClass(board, places) {
  const groups = [];
  for (const place of places) {
    const kind = board.server_classes[place];
    const last = groups[groups.length - 1];
    if (last && last.kind === kind) last.places.push(place);
    else groups.push({ kind, places: [place] });
  }
  const few = groups.length > 1 && groups.length <= MOST_HEADINGS;
  return few ? groups : [{ kind: null, places }];
}

/** Rows of cells: where each begins, how many cells it has, and the heading above it, if any. */
function rowsOf(groups, columns, high, gap) {
  const rows = [];
  const edge = Math.max(0, (LINE - high) / 2); // so that the names beside the first and the last row are whole
  let y = edge;
  let start = 0;
  for (const group of groups) {
    if (group.kind !== null) y += HEADING;
    for (let at = 0; at < group.places.length; at += columns) {
      const count = Math.min(columns, group.places.length - at);
      rows.push({ start: start + at, count, y, heading: at === 0 ? group : null });
      y += high + gap;
    }
    start += group.places.length;
  }
  return { rows, total: y + edge };
}

/** The size of cells so that all fit into the height, if that is possible, and their rows. */
function layout(groups, width, height, named, widest) {
  if (named) {
    const gap = 2;
    const columns = Math.max(1, Math.floor((width + gap) / (Math.max(84, Math.min(widest + 14, width)) + gap)));
    let high = 44;
    while (high > 34 && rowsOf(groups, columns, high, gap).total > height) high -= 2;
    return { ...rowsOf(groups, columns, high, gap), gap, columns, wide: Math.floor((width + gap) / columns) - gap, high, left: 0 };
  }
  const left = Math.min(widest + 10, ROW_NAMES, Math.floor(width / 4));
  const shapeOf = (size) => {
    const gap = size < 8 ? 1 : 2;
    const columns = Math.max(1, Math.floor((width - left + gap) / (size + gap)));
    return { ...rowsOf(groups, columns, size, gap), gap, columns, wide: size, high: size, left };
  };
  let size = LARGE;
  while (size > SMALL && shapeOf(size).total > height) size -= 1;
  return shapeOf(size);
}

function frame(context, look, status, { x, y, wide, high }) {
  if (status !== "turning" && status !== "draining") return;
  context.strokeStyle = look[status];
  context.lineWidth = 2;
  context.setLineDash(status === "draining" ? [3, 2] : []);
  context.strokeRect(x + 1, y + 1, wide - 2, high - 2);
  context.setLineDash([]);
}

/** A small cell: filled from below; a cross if the server is down. */
function drawSmall(context, look, box, cell) {
  const { x, y, wide, high } = box;
  context.fillStyle = cell.status === "lost" ? look.down : look.free;
  context.fillRect(x, y, wide, high);
  if (cell.status === "lost") {
    context.strokeStyle = look.surface;
    context.lineWidth = 1.5;
    context.beginPath();
    context.moveTo(x + 2, y + 2);
    context.lineTo(x + wide - 2, y + high - 2);
    context.moveTo(x + wide - 2, y + 2);
    context.lineTo(x + 2, y + high - 2);
    context.stroke();
    return;
  }
  if (!cell.whole) {
    context.fillStyle = look.line;
    context.fillRect(x + wide / 2 - 2, y + high / 2 - 0.5, 4, 1);
  }
  context.fillStyle = look.used;
  context.fillRect(x, y + high * (1 - cell.used), wide, high * cell.used);
  context.fillStyle = look.kept;
  context.fillRect(x, y + high * (1 - cell.used - cell.kept), wide, high * cell.kept);
  frame(context, look, cell.status, box);
}

/** A cell with its name, filled from the left in colours on which text can be read. */
function drawNamed(context, look, box, cell) {
  const { x, y, wide, high } = box;
  context.fillStyle = cell.status === "lost" ? look["down-soft"] : look.free;
  context.fillRect(x, y, wide, high);
  if (cell.status !== "lost") {
    context.fillStyle = look["used-soft"];
    context.fillRect(x, y, wide * cell.used, high);
    context.fillStyle = look["kept-soft"];
    context.fillRect(x + wide * cell.used, y, wide * cell.kept, high);
    context.fillStyle = look.used;
    context.fillRect(x, y + high - 3, wide * cell.used, 3);
    context.fillStyle = look.kept;
    context.fillRect(x + wide * cell.used, y + high - 3, wide * cell.kept, 3);
  }
  frame(context, look, cell.status, box);
  context.font = FONT;
  context.fillStyle = look.text;
  context.fillText(fitting(context, cell.name, wide - 10), x + 6, y + high / 2 - 7);
  context.font = SMALL_FONT;
  const state = { lost: "down", up: "" }[cell.status] ?? cell.status;
  const used = cell.whole ? `${amount(cell.amount)}/${amount(cell.whole)}` : "none";
  const both = [cell.status === "lost" ? "" : used, state].filter(Boolean).join(" ");
  const told = context.measureText(both).width > wide - 10 ? state || used : both; // the state matters more than the amount, which the bar shows, too
  context.fillText(fitting(context, told, wide - 10), x + 6, y + high / 2 + 8);
}

function cellOf(board, place, resource, sizes) {
  const [status, , used, kept] = board.servers[place];
  const whole = (sizes.get(board.server_classes[place]) || [])[resource] || 0;
  const share = whole ? Math.min(1, used[resource] / whole) : 0;
  return {
    name: board.names[place], status: board.statuses[status], whole, amount: used[resource],
    used: share, kept: whole ? Math.min(1 - share, kept[resource] / whole) : 0,
  };
}

/** Draw the rows that are seen between `top` and `top + view`. */
function draw(context, { board, resource, named, chosen, places, shape, top, view, width }) {
  const look = colours(...LOOKS);
  const sizes = capacities(board);
  context.clearRect(0, 0, width, view);
  context.textBaseline = "middle";
  let labelled = -Infinity;
  for (const row of shape.rows) {
    const y = row.y - top;
    if (y > view) break;
    if (y + shape.high < 0) continue;
    if (row.heading && row.heading.kind !== null) {
      const kind = board.classes.find((one) => one.name === row.heading.kind);
      const each = kind ? ` × ${amounts(Object.fromEntries(board.resources.map((name, r) => [name, kind.capacity[r]])))}` : "";
      context.font = SMALL_FONT;
      context.fillStyle = look.quiet;
      context.fillText(fitting(context, `${row.heading.kind}: ${row.heading.places.length}${each}`, width - 8), 4, y - HEADING / 2 + 1);
    }
    for (let column = 0; column < row.count; column += 1) {
      const place = places[row.start + column];
      const box = { x: shape.left + column * (shape.wide + shape.gap), y, wide: shape.wide, high: shape.high };
      (named ? drawNamed : drawSmall)(context, look, box, cellOf(board, place, resource, sizes));
      if (place === chosen) {
        context.strokeStyle = look.accent;
        context.lineWidth = 3;
        context.strokeRect(box.x + 1.5, y + 1.5, shape.wide - 3, shape.high - 3);
      }
    }
    if (!named && y - labelled >= 13) { // a name on every row that has height for one
      labelled = y;
      context.font = SMALL_FONT;
      context.fillStyle = look.quiet;
      context.fillText(fitting(context, board.names[places[row.start]], shape.left - 8), 4, y + shape.high / 2);
    }
  }
}

/** The width of the longest name, in pixels. Only names about as long as the longest are measured. */
function widestName(names) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = FONT;
  const longest = Math.max(0, ...names.slice(0, 20000).map((name) => name.length));
  let most = 0;
  for (const name of names) if (name.length > longest - 3) most = Math.max(most, context.measureText(name).width);
  return Math.min(220, Math.ceil(most));
}

export function Cells({ board, resource, named, chosen, setChosen, places }) {
  const outer = useRef(null);
  const canvas = useRef(null);
  const [top, setTop] = useState(0);
  const width = useWidth(outer);
  const height = Math.max(180, Math.round(window.innerHeight * 0.5));
  const widest = useMemo(() => widestName(board.names), [board.names, board.names.length]);
  const shape = useMemo(() => layout(byClass(board, places), Math.max(120, width), height, named, widest), [places, width, height, named, widest]);
  const view = Math.min(shape.total, height);
  useEffect(() => {
    if (canvas.current && width) draw(sharp(canvas.current, width, view), { board, resource, named, chosen, places, shape, top, view, width });
  });

  const cellUnder = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - shape.left) / (shape.wide + shape.gap));
    const y = event.clientY - box.top + top;
    const row = shape.rows.find((one) => y >= one.y && y < one.y + shape.high + shape.gap);
    return row && column >= 0 && column < row.count ? places[row.start + column] : null;
  };
  const open = (place) => { location.hash = `#/servers/${encodeURIComponent(board.names[place])}`; };
  const choose = (at) => {
    setChosen(places[at]);
    const row = shape.rows.find((one) => at < one.start + one.count);
    const box = outer.current;
    if (row.y - HEADING < box.scrollTop) box.scrollTop = row.y - HEADING;
    else if (row.y + shape.high > box.scrollTop + view) box.scrollTop = row.y + shape.high - view;
  };
  /** The cell above or below: in the next row, as far right as that row goes. */
  const beside = (at, step) => {
    const r = shape.rows.findIndex((one) => at < one.start + one.count);
    const next = shape.rows[r + step];
    return next ? next.start + Math.min(at - shape.rows[r].start, next.count - 1) : at;
  };
  const press = (event) => {
    const at = places.indexOf(chosen);
    const last = places.length - 1;
    const moves = {
      ArrowRight: () => Math.min(last, at + 1), ArrowLeft: () => Math.max(0, at - 1),
      ArrowDown: () => beside(Math.max(0, at), 1), ArrowUp: () => beside(Math.max(0, at), -1), Home: () => 0, End: () => last,
    };
    if (event.key === "Enter" && at >= 0) open(chosen);
    if (!moves[event.key]) return;
    event.preventDefault();
    choose(at < 0 ? 0 : moves[event.key]());
  };
  return html`<div class="cells" ref=${outer} style=${{ height: `${view}px`, overflowY: shape.total > view ? "auto" : "hidden" }}
      onScroll=${(event) => setTop(event.currentTarget.scrollTop)} tabindex="0" role="application"
      aria-label=${`Map of ${several(places.length, "server")}; arrow keys choose one, Enter opens it; the table below says the same`}
      onKeyDown=${press} onMouseMove=${(event) => { const place = cellUnder(event); if (place !== null && place !== chosen) setChosen(place); }}
      onClick=${(event) => { const place = cellUnder(event); if (place !== null) open(place); }}>
    <div class="cells-whole" style=${{ height: `${shape.total}px` }}><canvas ref=${canvas}></canvas></div></div>`;
}
