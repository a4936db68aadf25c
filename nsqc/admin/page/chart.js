// Lines over time as SVG: one module for all pages.
import {h, s, set, text} from "./dom.js";
import {count, date, span, time} from "./format.js";

const LEFT = 54, RIGHT = 4, TOP = 8, BOTTOM = 20, HEIGHT = 170;
const MOST = 360, LEAST = 6;     // slots
const HOUR_S = 3600, DAY_S = 86400;

/** Round values from 0 to top or slightly above, whole ones of whole numbers: as nsqc/charts.py has them. */
export function scale(top, whole = false) {
  if (!(top > 0)) return [0, 1];
  const power = 10 ** Math.floor(Math.log10(top / 4));
  const step = [1, 2, 2.5, 5, 10].map(part => part * power).find(part => top / part <= 5 && (!whole || Number.isInteger(part))) ?? 1;
  return Array.from({length: Math.ceil(top / step - 1e-9) + 1}, (_, number) => number * step);
}

/** The texts of an axis, with enough digits to distinguish its ticks. */
export function labels(ticks, format) {
  const step = ticks[1];
  let digits = 0;
  while (digits < 6 && Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-9) digits += 1;
  return ticks.map(tick => tick < 1000 ? tick.toFixed(digits) : format(tick));
}

/** The d of a path through values, with gaps where there are none. */
export function line(values, x, y) {
  let d = "", pen = false;
  values.forEach((value, at) => {
    if (value === null) { pen = false; return; }
    d += `${pen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!pen && (values[at + 1] === null || values[at + 1] === undefined)) d += "h.01";
    pen = true;
  });
  return d;
}

/** The d of the areas under a line. */
function under(values, x, y, floor) {
  let d = "", start = -1;
  for (let at = 0; at <= values.length; at += 1) {
    const is = at < values.length && values[at] !== null;
    if (is && start < 0) start = at;
    if (is || start < 0) continue;
    d += `${line(values.slice(start, at), index => x(index + start), y)}L${x(at - 1).toFixed(1)} ${floor}L${x(start).toFixed(1)} ${floor}Z`;
    start = -1;
  }
  return d;
}

/** A small line for a row of a table. */
export function spark() {
  const path = s("path");
  const element = s("svg", {class: "spark", viewBox: "0 0 84 20", "aria-hidden": "true"}, path);
  let before = "";
  return {element, update(values) {
    const top = Math.max(...values.filter(value => value !== null), 0) || 1;
    const d = line(values, at => 1 + at * 82 / Math.max(values.length - 1, 1), value => 18.5 - value / top * 17);
    if (d !== before) path.setAttribute("d", before = d);
  }};
}

/** A chart of the last hour, or of a longer range. fields: [{key, name}], two at most; format: of a value. */
export function chart(title, fields, format) {
  const svg = s("svg", {role: "img", height: HEIGHT}), box = h("div", {class: "chart"}, svg);
  const legend = h("div", {class: "legend"}), values = fields.map(() => h("b"));
  fields.forEach((field, number) => legend.append(h("span", {},
    s("svg", {viewBox: "0 0 18 8", "aria-hidden": "true"}, s("line", {class: `s${number}`, x1: 0, x2: 18, y1: 4, y2: 4})),
    `${field.name} `, values[number])));
  const card = h("section", {class: "card"}, h("header", {}, h("h2", {}, title), legend), box);
  const marks = s("g"), cursor = s("line", {class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden"});
  const lines = fields.map((_, number) => s("path", {class: `line s${number}`}));
  const area = s("path", {class: "fill s0"});
  set(svg, marks, area, lines, cursor);
  let data = null, width = 0, at = -1;

  /** A time of the axis: with the day where the range has more than one. */
  function stampOf(unix) {
    const seconds = slots() * data.step;
    return seconds > DAY_S ? date(unix).slice(5, 16) : seconds > HOUR_S / 3 ? time(unix).slice(0, 5) : time(unix);
  }

  /** The slots of the range, which begins with its data until there is an hour of it. */
  const slots = () => Math.min(MOST, Math.max(LEAST, length()));
  function place(index) { return LEFT + (width - LEFT - RIGHT) * index / (slots() - 1); }

  function draw() {
    if (!data || !width) return;
    const offset = slots() - length();
    const columns = fields.map(field => data.values[field.key]);
    const ticks = scale(Math.max(...columns.flat().filter(value => value !== null), 0), format === count);
    const top = ticks.at(-1), floor = HEIGHT - BOTTOM;
    const x = index => place(index + offset), y = value => floor - value / top * (floor - TOP);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const told = labels(ticks, format);
    set(marks, ticks.map((tick, number) => [s("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick)}),
      s("text", {x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end"}, told[number])]));
    const end = data.start + (length() - 1) * data.step;
    for (const part of width > 420 ? [1, .75, .5, .25, 0] : [1, .5, 0]) {
      const anchor = part === 1 ? "start" : part === 0 ? "end" : "middle";
      marks.append(s("text", {x: place((slots() - 1) * (1 - part)), y: HEIGHT - 4, "text-anchor": anchor},
        stampOf(end - part * (slots() - 1) * data.step)));
    }
    columns.forEach((column, number) => lines[number].setAttribute("d", line(column, x, y)));
    area.setAttribute("d", under(columns[0], x, y, floor));
    svg.setAttribute("aria-label", `${title}, the last ${span((slots() - 1) * data.step)}. ` + fields.map((field, number) =>
      `${field.name}: now ${said(columns[number].at(-1))}, at most ${said(Math.max(...columns[number].filter(value => value !== null)))}`).join("; "));
    point();
  }

  const said = value => value === null || value === undefined || !Number.isFinite(value) ? "unknown" : format(value);
  const length = () => data.values[fields[0].key].length;

  /** The values under the pointer, or the latest. */
  function point() {
    if (!data) return;
    const index = at < 0 ? length() - 1 : at;
    fields.forEach((field, number) => {
      const value = data.values[field.key][index];
      text(values[number], value === null || value === undefined ? "–" : format(value));
    });
    cursor.setAttribute("visibility", at < 0 ? "hidden" : "visible");
    if (at >= 0) {
      const x = place(at + slots() - length());
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
      text(stamp, ` at ${(slots() * data.step > DAY_S ? date : time)(data.start + at * data.step)}`);
    } else text(stamp, "");
  }
  const stamp = h("span", {class: "dim"});
  legend.append(stamp);

  svg.addEventListener("pointermove", event => {
    if (!data) return;
    const index = Math.round((event.offsetX - LEFT) / (width - LEFT - RIGHT) * (slots() - 1)) - (slots() - length());
    at = index >= 0 && index < length() ? index : -1;
    point();
  });
  svg.addEventListener("pointerleave", () => { at = -1; point(); });
  new ResizeObserver(([entry]) => { width = Math.max(0, Math.round(entry.contentRect.width)); draw(); }).observe(box);
  return {element: card, update(series) {
    data = series;
    if (at >= (data ? length() : 0)) at = -1;
    if (data) draw();
    else svg.setAttribute("aria-label", `${title}: not recorded`);
  }};
}
