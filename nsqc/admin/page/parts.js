// What several pages have: heads, tiles, columns.
import {h, s, set, show, text} from "./dom.js";
import {session, url} from "./api.js";
import {age, bytes, count, ms, rate} from "./format.js";

/** The head of a page. crumbs: [[label, href]]. */
export function head(title, crumbs = []) {
  const badges = h("div"), actions = h("div", {class: "actions"});
  const element = h("div", {class: "head"},
    crumbs.length ? h("nav", {class: "crumbs", "aria-label": "Breadcrumb"}, crumbs.map(([label, href], number) => [number ? " / " : "", h("a", {href}, label)])) : null,
    h("div", {}, h("h1", {}, title), badges), actions);
  let before = "";
  return {element, actions, badges(list) {
    const key = JSON.stringify(list);
    if (key !== before) { before = key; set(badges, list.map(([label, tone]) => h("span", {class: `badge ${tone ?? ""}`}, label))); }
  }};
}

/** Numbers at a glance. spec: [[label, value(data), tone(data)]]. */
export function tiles(spec) {
  const values = spec.map(([, , , kind]) => h("dd", {class: kind ?? null}));
  const element = h("dl", {class: spec.length === 10 ? "tiles ten" : "tiles"}, spec.map(([label], number) => h("div", {}, h("dt", {}, label), values[number])));
  return {element, update(data) {
    spec.forEach(([, value, tone, kind], number) => {
      text(values[number], value(data));
      const name = [kind, tone?.(data)].filter(Boolean).join(" ");
      if (values[number].className !== name) values[number].className = name;
    });
  }};
}

/** A badge for the head of what is on nodes that do not answer. */
export function stale(data) {
  const all = data.node_rows.length, known = data.node_rows.filter(row => row.seen_at);
  return known.length ? [[`${all - known.length} of ${all} nodes answer, the rest as of ${age(Math.min(...known.map(row => row.seen_at)))} ago`, "warn"]] : [];
}

/** A 99th percentile; of a histogram, the upper bound of its bucket. */
export const p99 = data => `${data.p99_from === "buckets" && data.p99_ms !== null ? "≤ " : ""}${ms(data.p99_ms)}`;

/** What to do where no node measures latencies. */
export function unmeasured() {
  const element = h("p", {class: "hint", hidden: true}, "Latencies are not measured: start the nodes with ", h("code", {}, "--e2e-processing-latency-percentile=0.99"), ".");
  return {element, update(data) { show(element, data.p99_from === null); }};
}

const WORD = {"1h": "Last hour", "6h": "Last 6 hours", "1d": "Last day", "1w": "Last week"};

/** A choice of the range of charts, where Prometheus has more than the last hour; value(): for the API. */
export function ranges(args, {refresh, remember}) {
  const element = h("select", {"aria-label": "Range of the charts", hidden: session.ranges.length < 2, change: () => { remember({range: value()}); refresh(); }},
    session.ranges.map(each => h("option", {value: each, selected: each === args.range}, WORD[each] ?? each)));
  const value = () => element.value === session.ranges[0] ? "" : element.value;
  return {element, value};
}

/** A box with a title. */
export function card(title, ...children) {
  const tools = h("div", {class: "filters"}), heading = h("h2", {}, title);
  return {element: h("section", {class: "card"}, h("header", {}, heading, tools), children), tools, title: heading};
}

const FAULT = "INVALID_ARG_SEARCH";

/** A field that filters names by a text or a regular expression. ask(call): the answer; null if the expression is faulty, which
 *  fault then tells in place of a list. */
export function filter(label, value, moved) {
  const input = h("input", {type: "search", value, placeholder: "Name or /regex/", "aria-label": label, input: () => moved(input.value)});
  const fault = h("p", {class: "note bad", role: "alert", hidden: true});
  return {input, fault, async ask(call) {
    let data = null, told = "";
    try { data = await call; } catch (error) {
      if (error.word !== FAULT) throw error;
      told = error.message.slice(FAULT.length + 3);
    }
    text(fault, told);
    show(fault, Boolean(told));
    return data;
  }};
}

/** A button. */
export const button = (label, click, tone = "") => h("button", {type: "button", class: tone || null, click}, label);

/** A switch between two actions, by what is now. */
export function toggle(on, off, act) {
  let is = false;
  const element = button(off, () => act(is));
  return {element, update(now) { is = now; text(element, now ? on : off); }};
}

export const columns = {
  topic: {key: "name", label: "Topic", text: row => row.name, link: row => url.topic(row.name)},
  channel: {key: "name", label: "Channel", text: row => row.name, link: row => url.channel(row.topic, row.name)},
  node: {key: "node", label: "Node", version: row => `${row.node} ${row.seen_at ? age(row.seen_at) : ""}`, node: row => [h("a", {href: url.node(row.node)}, row.node), row.seen_at ? h("span", {class: "dim"}, ` ${age(row.seen_at)} ago`) : ""]},
  came: {key: "came", label: "In /s", num: true, text: row => rate(row.came)},
  went: {key: "went", label: "Out /s", num: true, text: row => rate(row.went)},
  depth: {key: "depth", label: "Depth", num: true, text: row => count(row.depth)},
  backend: {key: "backend", label: "On disk", num: true, opt: true, text: row => count(row.backend)},
  in_flight: {key: "in_flight", label: "In flight", num: true, text: row => count(row.in_flight)},
  deferred: {key: "deferred", label: "Deferred", num: true, opt: true, text: row => count(row.deferred)},
  requeues: {key: "requeues", label: "Requeued", num: true, opt: true, text: row => count(row.requeues)},
  timeouts: {key: "timeouts", label: "Timed out", num: true, opt: true, text: row => count(row.timeouts)},
  messages: {key: "messages", label: "Messages", num: true, opt: true, text: row => count(row.messages)},
  clients: {key: "clients", label: "Consumers", num: true, text: row => count(row.clients), tone: row => !row.clients && row.depth ? "warn" : ""},
  channels: {key: "channels", label: "Channels", num: true, opt: true, text: row => count(row.channels)},
  nodes: {key: "nodes", label: "Nodes", num: true, opt: true, text: row => count(row.nodes)},
  oldest: {key: "oldest", label: "Oldest", num: true, opt: true, text: row => age(row.oldest)},
  p99: {key: "p99_ms", label: "p99", num: true, opt: true, text: row => ms(row.p99_ms)},
  spark: {key: "spark", label: "Last hour", sort: false, opt: true, spark: row => row.spark ?? []},
  dead: {key: "dead_topic", label: "Dead letters", opt: true, sort: false, version: row => `${row.dead_topic} ${row.dead_letters}`, node: row => row.dead_topic ? deadLetters(row) : ""},
  paused: {key: "paused", label: "State", sort: false, version: row => String(row.paused), node: row => row.paused ? h("span", {class: "badge warn"}, "paused") : ""},
  bytes: {key: "bytes", label: "Published", num: true, opt: true, text: row => bytes(row.bytes)},
};

/** How many dead letters wait. */
export const waiting = letters => letters ? `${count(letters.count)}${letters.more ? " or more" : ""} waiting` : "";

/** How many dead letters a channel has, and where they are: a link once there are any, as the first one creates the topic. */
export function deadLetters(row) {
  return [row.dead_waiting ? `${waiting(row.dead_waiting)}, ` : "", `${count(row.dead_letters)} moved → `, row.dead_letters ? h("a", {href: url.topic(row.dead_topic)}, row.dead_topic) : row.dead_topic];
}

const SHAPES = {bad: "M10 2 18 17H2zM10 8v4M10 14.4v.6", warn: "M10 3a7 7 0 1 0 .01 0zM10 6.5v4.5M10 13.4v.6", note: "M10 3a7 7 0 1 0 .01 0zM10 9v5M10 6v.6"};
const WORDS = {bad: "Serious", warn: "Warning", note: "Note"};

/** A sign of how bad something is: a shape and a word, not only a colour. */
export function sign(severity) {
  return s("svg", {viewBox: "0 0 20 20", width: 16, height: 16, class: severity, role: "img", "aria-label": WORDS[severity]},
    s("path", {d: SHAPES[severity], fill: "none", stroke: "currentColor", "stroke-width": 1.7, "stroke-linejoin": "round", "stroke-linecap": "round"}));
}

/** The list of what needs attention: the first ones, and a button for the rest. */
export function concerns(most) {
  const list = h("ul", {class: "concerns"}), box = h("div", {}, list);
  let before = "", latest = [];
  const all = button("", () => { most = Infinity; update(...latest); }, "plain"), rest = h("p", {class: "note"}, all);
  function update(found, counts) {
    latest = [found, counts];
    const shown = found.slice(0, most), key = JSON.stringify(shown.map(each => [each.rule, each.text, each.since])) + JSON.stringify(counts);
    if (key !== before) {
      before = key;
      const total = Object.values(counts).reduce((sum, number) => sum + number, 0);
      text(all, `Show ${count(found.length)} of ${count(total)}`);
      if (!total) set(box, h("p", {class: "calm"}, "✓ All is well"));
      else set(box, set(list, shown.map(row)), found.length > shown.length ? rest : total > shown.length ? h("p", {class: "note"}, `${count(total - shown.length)} more`) : null);
    }
    for (const time of list.querySelectorAll("time")) text(time, age(Number(time.dataset.since)));
  }
  return {element: box, update};
}

function row(each) {
  const href = each.channel ? url.channel(each.topic, each.channel) : each.topic ? url.topic(each.topic)
    : each.rule === "lookup-down" ? "lookup" : each.node ? url.node(each.node) : "nodes";
  return h("li", {}, sign(each.severity), h("a", {href}, each.text), each.since ? h("time", {"data-since": each.since}, age(each.since)) : h("span"));
}

/** What could not be read of some nodes. */
export function problems() {
  const list = h("ul", {class: "pad"}), element = h("section", {class: "card problem", hidden: true}, list);
  return {element, update(errors) {
    const lines = Object.entries(errors ?? {});
    element.hidden = !lines.length;
    const key = JSON.stringify(lines);
    if (element.dataset.key !== key) { element.dataset.key = key; set(list, lines.map(([node, error]) => h("li", {}, h("b", {class: "mono"}, node), ` ${error}`))); }
  }};
}
