// Numbers, times and sizes for people.

const whole = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit", second: "2-digit"});
const moment = new Intl.DateTimeFormat("sv-SE", {dateStyle: "short", timeStyle: "medium"});
export const NONE = "–";

const missing = value => value === null || value === undefined;

/** 1,234; above a million 1.23 M. */
export function count(value) {
  if (missing(value)) return NONE;
  if (Math.abs(value) < 1e6) return whole.format(Math.round(value));
  const [size, unit] = Math.abs(value) < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return `${(value / size).toPrecision(4)} ${unit}`;
}

/** A rate, a second. */
export function rate(value) {
  if (missing(value)) return NONE;
  if (value === 0) return "0";
  if (value < 0.1) return value.toPrecision(1);
  return value < 10 ? value.toFixed(1) : count(value);
}

/** Seconds as 3 s, 12 min, 5 h, 3 d. */
export function span(seconds) {
  if (missing(seconds)) return NONE;
  const value = Math.max(0, seconds);
  if (value < 1) return value < 0.001 ? "0 s" : `${Math.round(value * 1000)} ms`;
  if (value < 100) return `${Math.round(value)} s`;
  if (value < 6000) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} d`;
}

/** How long ago a unix time is, by the server's clock. */
export const skew = {seconds: 0};
export const now = () => Date.now() / 1000 + skew.seconds;
export function age(unix) { return missing(unix) ? NONE : span(now() - unix); }

/** Milliseconds. */
export function ms(value) {
  if (missing(value)) return NONE;
  if (value >= 1000) return span(value / 1000);
  return value < 1 ? `${value.toPrecision(2)} ms` : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

/** 12.3 MB. */
export function bytes(value) {
  if (missing(value)) return NONE;
  let size = value, unit = 0;
  while (size >= 1000 && unit < 5) { size /= 1000; unit += 1; }
  return `${unit && size < 100 ? size.toFixed(1) : Math.round(size)} ${["B", "kB", "MB", "GB", "TB", "PB"][unit]}`;
}

/** 14:03:07 */
export const time = unix => clock.format(new Date(unix * 1000));
/** 2026-11-25 14:03:07 */
export const date = unix => moment.format(new Date(unix * 1000));
/** The plural of most words. */
export const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;
