// Times in the viewer's zone, durations and amounts, as people read them.

const day = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

/** A time of today as such, another with its date. */
export function when(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const then = new Date(seconds * 1000);
  const today = day.format(new Date()) === day.format(then);
  return today ? clock.format(then) : `${day.format(then)}, ${clock.format(then)}`;
}

export const exactly = (seconds) => (seconds == null ? "" : whole.format(new Date(seconds * 1000)));

/** A duration in its two largest units: 4.5 s, 45 s, 3 min 20 s, 2 h 5 min, 3 d 4 h. */
export function span(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const s = Math.max(0, seconds);
  if (s < 9.95) return `${Number(s.toFixed(1))} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const m = Math.round(s / 60);
  if (s < 600) {
    const rest = Math.round(s % 60);
    return rest && rest < 60 ? `${Math.floor(s / 60)} min ${rest} s` : `${m} min`;
  }
  if (m < 60) return `${m} min`;
  const h = Math.floor(m / 60);
  if (h < 48) return m % 60 ? `${h} h ${m % 60} min` : `${h} h`;
  return h % 24 ? `${Math.floor(h / 24)} d ${h % 24} h` : `${h / 24} d`;
}

/** A change of a duration: 31 s shorter, 5 min longer. */
export const longer = (seconds) => `${span(Math.abs(seconds))} ${seconds > 0 ? "longer" : "shorter"}`;

/** The change of mean waits that a comparison found, as the end of a sentence. */
export const changeOfWaits = (wait) => `${longer(wait.p50)} (8 in 10 runs: ${longer(wait.p10)} to ${longer(wait.p90)})`;

const minute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dayOnly = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** A time on an axis that is so many seconds long. */
export function tick(seconds, length) {
  const then = new Date(seconds * 1000);
  if (length > 3 * 86400) return dayOnly.format(then);
  return length < 600 ? clock.format(then) : minute.format(then);
}

const few = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, useGrouping: true });
const count = new Intl.NumberFormat("en");

export const amount = (x) => (x === null || x === undefined ? "–" : few.format(x));
export const number = (x) => (x === null || x === undefined ? "–" : count.format(x));
export const percent = (x) => (x === null || x === undefined ? "–" : `${Math.round(100 * x)} %`);

/** {"cpu": 4, "memory": 0} as "4 cpu". */
export function amounts(values, { zeros = false } = {}) {
  const parts = Object.entries(values || {}).filter(([, x]) => zeros || x).map(([name, x]) => `${amount(x)} ${name}`);
  return parts.length ? parts.join(", ") : "nothing";
}

// Characters that are not seen, or that change the order in which others are read: controls, bidirectional marks, zero widths.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const HIDDEN_IN_OUTPUT = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const TERMINAL = /\u001b\[[0-9;?]*[A-Za-z]/g; // colours and movements of the cursor

const shown = (character) => `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;

/** A text of a user in which nothing is hidden. */
export const plain = (text) => String(text ?? "").replace(HIDDEN, shown);

/** Output of a job without what only a terminal understands. */
export const plainOutput = (text) => text.replace(TERMINAL, "").replace(/\r\n/g, "\n").replace(HIDDEN_IN_OUTPUT, shown);

/** "1 job", "2 jobs". */
export const several = (n, one, more = `${one}s`) => `${number(n)} ${n === 1 ? one : more}`;
