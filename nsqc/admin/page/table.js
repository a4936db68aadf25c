// Tables whose rows stay: an update touches only what has changed.
import {h, set, show, text} from "./dom.js";
import {spark} from "./chart.js";

/**
 * columns: [{key, label, num, opt, wrap, sort, text(row), link(row), node(row), spark(row), tone(row)}]; one of text, node
 * or spark. id(row): what a row is known by. sort: {by, desc} and onSort(by): the server sorts; otherwise the page does.
 */
export function table({caption, columns, id, empty, sort = null, onSort = null}) {
  let rows = [], state = sort ?? {by: "", desc: false};
  const known = new Map();
  const heads = columns.map(column => {
    const label = column.sort === false ? column.label : h("button", {type: "button", click: () => choose(column)}, column.label, h("i", {"aria-hidden": "true"}));
    return h("th", {scope: "col", class: classes(column)}, label || h("span", {class: "hidden"}, "Actions"));
  });
  const body = h("tbody");
  const view = h("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
    h("table", {}, h("caption", {class: "hidden"}, caption), h("thead", {}, h("tr", {}, heads)), body));
  const none = h("p", {class: "note", hidden: true}, empty);
  const element = h("div", {}, view, none);

  function choose(column) {
    if (onSort) { onSort(column.key); return; }
    state = {by: column.key, desc: state.by === column.key ? !state.desc : Boolean(column.num)};
    update(rows);
  }

  function mark() {
    columns.forEach((column, number) => {
      const is = column.key === state.by && column.sort !== false;
      if (is) heads[number].setAttribute("aria-sort", state.desc ? "descending" : "ascending");
      else heads[number].removeAttribute("aria-sort");
      const arrow = heads[number].querySelector("i");
      if (arrow) text(arrow, is ? (state.desc ? "↓" : "↑") : "");
    });
  }

  function ordered(given) {
    if (onSort || !state.by) return given;
    const factor = state.desc ? -1 : 1, value = row => row[state.by] ?? -Infinity;
    return [...given].sort((one, other) => {
      const a = value(one), b = value(other);
      return (typeof a === "string" ? a.localeCompare(b) : a - b) * factor;
    });
  }

  function update(given, sorted = null) {
    rows = given;
    if (sorted) state = sorted;
    mark();
    const seen = new Set();
    let before = null;
    for (const row of ordered(given)) {
      const key = id(row);
      if (seen.has(key)) continue;
      seen.add(key);
      let line = known.get(key);
      if (!line) known.set(key, line = made(columns));
      line.update(row);
      const next = before ? before.nextSibling : body.firstChild;
      if (next !== line.element) body.insertBefore(line.element, next);
      before = line.element;
    }
    for (const [key, line] of known) if (!seen.has(key)) { line.element.remove(); known.delete(key); }
    show(none, given.length === 0);
    show(view, given.length > 0);
  }
  return {element, update};
}

const classes = column => [column.num && "num", column.opt && "opt", column.wrap && "wrap", column.link && "name"].filter(Boolean).join(" ") || null;

function made(columns) {
  const updates = [];
  let current = null;
  const element = h("tr", {}, columns.map(column => {
    const cell = h("td", {class: classes(column)});
    if (column.spark) {
      const line = spark();
      cell.append(line.element);
      updates.push(row => line.update(column.spark(row)));
    } else if (column.node) {
      let key;
      updates.push(row => {
        const next = column.version ? column.version(row) : "";
        if (next !== key) { key = next; set(cell, column.node(row, () => current)); }
      });
    } else {
      const holder = column.link ? h("a") : h("span");
      cell.append(holder);
      updates.push(row => {
        if (column.link) named(holder, column.text(row), column.link(row));
        else text(holder, column.text(row));
        if (column.tone) { const tone = column.tone(row) || ""; if (holder.className !== tone) holder.className = tone; }
      });
    }
    return cell;
  }));
  return {element, update(row) { current = row; for (const each of updates) each(row); }};
}

const SHORT = 24, TAIL = 12;

/** A link whose name loses its middle where there is no room: names often differ at their ends. */
function named(link, name, to) {
  if (link.title === name && link.getAttribute("href") === to) return;
  link.setAttribute("href", to);
  link.title = name;
  if (name.length <= SHORT) { text(link, name); link.removeAttribute("aria-label"); return; }
  link.setAttribute("aria-label", name);
  set(link, h("span", {}, name.slice(0, -TAIL)), h("span", {}, name.slice(-TAIL)));
}

/** A pager of the server's pages. */
export function pager(onMove) {
  const where = h("span"), back = h("button", {type: "button", class: "plain", click: () => onMove(-1)}, "Previous"),
    forth = h("button", {type: "button", class: "plain", click: () => onMove(1)}, "Next");
  const element = h("nav", {class: "pager", "aria-label": "Pages", hidden: true}, where, back, forth);
  return {element, update(offset, limit, total) {
    show(element, total > limit || offset > 0);
    text(where, `${(Math.min(offset + 1, total)).toLocaleString("en")}–${Math.min(offset + limit, total).toLocaleString("en")} of ${total.toLocaleString("en")}`);
    back.disabled = offset === 0;
    forth.disabled = offset + limit >= total;
  }};
}
