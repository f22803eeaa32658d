// What all views share: html, small components and hooks.

import { h, Fragment } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import htm from "htm";
import { store } from "./board.js";
import { amount, exactly, plain, when } from "./format.js";

export const html = htm.bind(h);
export { Fragment };

/** The newest board; the component is drawn again when it changes. */
export function useBoard() {
  const [, again] = useState(0);
  useEffect(() => store.subscribe(() => again((n) => n + 1)), []);
  return store.board;
}

/** Say that the view has drawn its first state; tests and screen readers wait for that. */
export function useReady(ready) {
  useEffect(() => {
    if (!ready) return undefined;
    const frame = requestAnimationFrame(() => { document.body.dataset.ready = ""; });
    return () => cancelAnimationFrame(frame);
  }, [ready]);
}

/** Load something now, when `inputs` change, and every so many seconds while the page is visible. */
export function useLoaded(load, inputs, seconds = 0) {
  const [state, set] = useState({ value: null, error: null });
  const [turn, again] = useState(0);
  useEffect(() => {
    let over = false;
    const run = async () => {
      try {
        const value = await load();
        if (!over) set({ value, error: null });
      } catch (error) {
        if (!over) set((was) => ({ value: error.status === 0 ? was.value : null, error }));
      }
    };
    run();
    const timer = seconds ? setInterval(() => { if (!document.hidden) run(); }, seconds * 1000) : 0;
    return () => { over = true; clearInterval(timer); };
  }, [...inputs, turn]);
  return { ...state, reload: () => again((n) => n + 1) };
}

export function Time({ at }) {
  if (at === null || at === undefined) return html`<span>–</span>`;
  return html`<time datetime=${new Date(at * 1000).toISOString()} title=${exactly(at)}>${when(at)}</time>`;
}

export const State = ({ of, text = of }) => html`<span class=${`state state-${of}`}>${text}</span>`;
export const Problem = ({ error }) =>
  error ? html`<p class="problem" role="alert">${String(error.message || error)}</p>` : null;
/** A text of a user: nothing in it is hidden, and it does not change the order of what stands beside it. */
export const Said = ({ text }) => html`<bdi>${plain(text)}</bdi>`;
export const JobLink = ({ id, children }) => html`<a href=${`#/jobs/${Number(id)}`}>${children || id}</a>`;
export const ServerLink = ({ name }) => html`<a href=${`#/servers/${encodeURIComponent(name)}`}>${name}</a>`;

export const Waiting = ({ error, what = "Loading" }) => html`<${Fragment}><${Problem} error=${error} />
  ${error ? null : html`<p class="hint">${what} …</p>`}<//>`;

/** A table in a box that scrolls by itself, so that the page does not scroll sideways on a phone. */
export const Table = ({ head, children, label, quiet }) => html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
  <table><caption class=${quiet ? "unseen" : "quiet"}>${label}</caption><thead><tr>${head.map((one) => html`<th scope="col">${one}</th>`)}</tr></thead>
  <tbody>${children}</tbody></table></div>`;

/** How much of a capacity is used: in numbers, and as a bar below them. */
export const Meter = ({ used, kept = 0, whole }) => (whole ? html`<span class="meter">${amount(used)} / ${amount(whole)}
  <span class="meter-bar" aria-hidden="true"><span class="meter-used" style=${{ width: `${Math.min(100, (100 * used) / whole)}%` }}></span><span class="meter-kept"
    style=${{ width: `${Math.min(100 - Math.min(100, (100 * used) / whole), (100 * kept) / whole)}%` }}></span></span></span>` : html`<span class="hint">none</span>`);

/** A choice of few, as buttons of which one is pressed. */
export const Choice = ({ label, options, value, onChange }) => html`<div class="choice" role="group" aria-label=${label}>
  <span class="choice-label" aria-hidden="true">${label}</span>
  ${options.map(([key, text]) => html`<button type="button" aria-pressed=${String(key === value)}
    onClick=${() => onChange(key)}>${text}</button>`)}</div>`;

/** A dialog that shows what an action does before it is done. */
export function Confirm({ title, action, danger, onDo, onClose, children, ready = true }) {
  const box = useRef(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useLayoutEffect(() => { if (box.current && !box.current.open) box.current.showModal(); }, []);
  const act = async () => {
    setBusy(true);
    setError(null);
    try {
      await onDo();
      onClose();
    } catch (failed) {
      setError(failed);
      setBusy(false);
    }
  };
  return html`<dialog ref=${box} onClose=${onClose} aria-labelledby="dialog-title">
    <h2 id="dialog-title">${title}</h2>
    <div class="dialog-body">${children}</div>
    <${Problem} error=${error} />
    <div class="actions">
      <button type="button" onClick=${() => box.current.close()}>Keep as it is</button>
      <button type="button" class=${danger ? "danger" : "primary"} disabled=${busy || !ready} onClick=${act}>${action}</button>
    </div></dialog>`;
}

/** Width of an element, followed as it changes. */
export function useWidth(ref) {
  const [width, set] = useState(0);
  useLayoutEffect(() => {
    if (!ref.current) return undefined;
    const look = () => set(Math.floor(ref.current ? ref.current.clientWidth : 0));
    const observer = new ResizeObserver(look);
    observer.observe(ref.current);
    look();
    return () => observer.disconnect();
  }, [ref.current]);
  return width;
}

/** Colours of the present theme by name, from the style sheet. */
export function colours(...names) {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** A colour for each name, the same on every page: by its place among all names. */
export function palette(names) {
  const style = getComputedStyle(document.documentElement);
  return new Map(names.map((name, at) => [name, style.getPropertyValue(`--series-${at % 8}`).trim()]));
}

/** A text for a canvas, shortened in its middle so that it fits: what tells names apart stands at either end. */
export function fitting(context, text, room) {
  let keep = text.length;
  let shown = text;
  while (keep > 2 && context.measureText(shown).width > room) {
    keep -= 1;
    shown = `${text.slice(0, Math.floor(keep / 2))}…${text.slice(text.length - Math.ceil(keep / 2))}`;
  }
  return shown;
}

/** A canvas context that draws in CSS pixels, sharp on any screen. */
export function sharp(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
