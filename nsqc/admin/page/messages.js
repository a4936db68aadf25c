import {h, set, text} from "./dom.js";
import {get, session} from "./api.js";
import {letters, republish} from "./actions.js";
import {toast} from "./dialog.js";
import {bytes, count, date, plural} from "./format.js";
import {button, head} from "./parts.js";

const STATES = [["queued", "Waiting"], ["in_flight", "In flight"], ["deferred", "Deferred"], ["history", "History (log)"]];
const LIMIT = 50, SHOWN = 2000, HEX = 4096;

/** Where a dead letter comes from. */
function origin(from) {
  if (!from) return [];
  return [["Dead letter of", `${from.topic}/${from.channel}: ${from.reason}, attempts ${from.attempts}`], ["First published", date(from.timestamp / 1e9)],
    ["Last client", from.client ? `${from.client.client_id || from.client.hostname} ${from.client.remote_address}` : undefined]];
}

export function messages(root, args, {remember}) {
  let next = null, tail = null, nodes = [], loaded = false, mayDrop = false;
  const topic = field("Topic", {value: args.topic ?? "", list: "topic-names", required: true, autocomplete: "off", spellcheck: "false"});
  const channel = field("Channel", {value: args.channel ?? "", list: "channel-names", placeholder: "the topic itself", autocomplete: "off", spellcheck: "false"});
  const node = h("select"), state = h("select", {}, STATES.map(([value, label]) => h("option", {value, selected: value === args.state}, label)));
  const place = field("From offset or time", {value: args.from ?? "", placeholder: "beginning, 1200, 1h"});
  const search = field("Containing", {value: args.search ?? "", type: "search"});
  const live = h("input", {type: "checkbox", change: follow});
  const names = h("datalist", {id: "topic-names"}), channels = h("datalist", {id: "channel-names"});
  const form = h("form", {class: "card bar2", submit: event => { event.preventDefault(); begin(); }}, topic.label, channel.label, h("label", {class: "field"}, "Node", node), h("label", {class: "field"}, "Show", state),
    place.label, search.label, h("label", {class: "check"}, live, "Live"), h("button", {class: "primary", type: "submit"}, "Show"), names, channels);
  const list = h("ul", {class: "messages"}), note = h("p", {class: "note", role: "status"}), more = button("More", () => load(false));
  more.hidden = true;
  root.append(head("Messages").element, form, h("section", {class: "card"}, h("header", {}, h("h2", {}, "Messages"), h("div", {class: "filters"}, more)), note, list));
  state.addEventListener("change", fit);
  for (const box of [topic.input, channel.input]) box.addEventListener("input", () => suggest(box));
  fit();

  function field(label, props) {
    const input = h("input", props);
    return {input, label: h("label", {class: "field"}, label, input)};
  }
  function fit() {
    const log = state.value === "history";
    place.label.hidden = !log;
    live.parentElement.hidden = !log;
    channel.input.disabled = log;
    if (!log && live.checked) { live.checked = false; follow(); }
  }
  async function suggest(box) {
    try {
      const found = (await get("search", {q: box === topic.input ? topic.input.value : `${topic.input.value}/${channel.input.value}`})).found;
      set(names, found.filter(each => each.kind === "topic").map(each => h("option", {value: each.topic})));
      set(channels, found.filter(each => each.kind === "channel" && each.topic === topic.input.value).map(each => h("option", {value: each.channel})));
    } catch { /* only a help */ }
  }
  function question() {
    const from = place.input.value.trim(), history = state.value === "history";
    const at = next !== null ? (history ? {offset: next} : {from: next})
      : history && from && from !== "beginning" ? (/^\d{1,18}$/.test(from) ? {offset: from} : {time: from}) : {};
    return {topic: topic.input.value, channel: history ? "" : channel.input.value, node: node.value, state: state.value, search: search.input.value, limit: LIMIT, ...at};
  }
  function begin() {
    tail?.abort();
    next = null;
    list.replaceChildren();
    remember({topic: topic.input.value, channel: channel.input.value, node: node.value, state: state.value, from: place.input.value, search: search.input.value});
    load(true);
  }
  async function load(first) {
    if (!topic.input.value) { text(note, "Choose a topic."); return; }
    more.hidden = true;
    text(note, "Loading…");
    let data;
    try {
      data = await get("messages", question());
    } catch (error) {
      text(note, explained(error));
      if (first) list.replaceChildren();
      return;
    }
    take(data);
    text(note, told(data));
    more.hidden = data.next === null || (state.value === "history" && !data.messages.length && !search.input.value);
    if (live.checked) follow();
  }
  function told(data) {
    const parts = [];
    if (data.scanned !== undefined) parts.push(`${plural(data.messages.length, "match")} in ${plural(data.scanned, "message")} looked at`.replace("matchs", "matches"));
    else if (!list.children.length) parts.push("No messages.");
    else if (data.count !== null && data.count !== undefined) parts.push(`${count(list.children.length)} of ${plural(data.count, "message")}`);
    if (Number(data.damaged)) parts.push(`${plural(Number(data.damaged), "damaged message")} left out`);
    return parts.join(" · ");
  }
  function explained(error) {
    const words = {NOT_FOUND: "This node is NSQ's own nsqd, which cannot show messages.", TOPIC_NOT_FOUND: "This node has no such topic.", CHANNEL_NOT_FOUND: "The topic has no such channel on this node.", OFFSET_GONE: "Retention has removed this offset.", OFFSET_BEYOND_END: "This offset is beyond the end of the log.",
      NOT_LOCAL: "Messages are shown only to clients on the same machine. " + error.message};
    return words[error.word] ?? error.message;
  }
  function take(data, front = false) {
    mayDrop = data.may_change;
    next = data.next === null || data.next === undefined ? null : String(data.next);
    const rows = data.messages.map(message => h("li", {}, entry(message)));
    if (front) { list.prepend(...rows.reverse()); while (list.children.length > 500) list.lastChild.remove(); } else list.append(...rows);
  }
  async function follow() {
    tail?.abort();
    if (!live.checked) return;
    tail = new AbortController();
    const {signal} = tail;
    let at = null;
    while (!signal.aborted) {
      try {
        const data = await get("messages", {topic: topic.input.value, node: node.value, state: "history", limit: 100, ...at === null ? {time: "0s"} : {offset: at, wait_ms: 10000}}, signal);
        at = data.next;
        const wanted = search.input.value;
        data.messages = data.messages.filter(message => !wanted || (message.body ?? "").includes(wanted));
        if (signal.aborted) return;
        take(data, true);
        text(note, "Live: new messages appear at the top.");
        more.hidden = true;
      } catch (error) {
        if (!signal.aborted) { text(note, explained(error)); live.checked = false; }
        return;
      }
    }
  }

  function entry(message) {
    const box = h("details", {}, h("summary", {}, h("span", {class: "when"}, date(message.timestamp / 1e9)), h("span", {class: "preview"}, preview(message)), h("span", {class: "when"}, bytes(message.size))));
    box.addEventListener("toggle", () => { if (box.open && box.children.length === 1) box.append(details(message)); });
    return box;
  }
  function details(message) {
    const facts = [["ID", message.id], ["Attempts", message.attempts], ["Offset", message.offset], ["State", message.state], ["Size", bytes(message.size)], ["Due", message.due ? date(message.due / 1e9) : undefined],
      ["Delivered", message.delivered ? date(message.delivered / 1e9) : undefined], ["Client", message.client ? `${message.client.client_id} ${message.client.remote_address}` : undefined],
      ...origin(message.origin)];
    const raw = data(message), [kind, body] = readable(message, raw);
    const file = button("Download", () => download(message, raw)), copy = button("Copy as curl", () => put(curl(message)));
    return h("div", {class: "message"}, h("dl", {}, facts.filter(([, value]) => value !== undefined && value !== null).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {class: "mono"}, String(value))))),
      h("pre", {class: kind, tabindex: 0, role: "region", "aria-label": kind === "hex" ? "Body in hexadecimal" : "Body"}, body || "(empty)"), message.truncated ? h("p", {class: "warn"}, `Only the first ${bytes(raw.length)} are shown.`) : null,
      h("div", {class: "actions"}, button("Copy", () => put(message.body ?? message.body_base64 ?? "")), message.truncated ? null : copy, file,
        session.may_publish && !message.truncated ? button("Publish again…", () => republish(message, topic.input.value, node.value, nodes)) : null,
        ...message.origin ? [session.may_redrive && message.may_redrive ? button("Redrive…", () => letters("redrive", topic.input.value, {message, node: node.value, origin: `${message.origin.topic}/${message.origin.channel}`})) : null,
          mayDrop && session.may_extend ? button("Drop…", () => letters("drop", topic.input.value, {message, node: node.value}), "danger") : null] : []));
  }
  function curl(message) {
    const target = quoted(`http://${node.value}/pub?topic=${encodeURIComponent(topic.input.value)}`);
    if (message.body !== undefined && !CONTROLS.test(message.body)) return `curl -sS --data-raw ${quoted(message.body)} ${target}`;
    return `echo ${btoa(String.fromCharCode(...data(message)))} | base64 -d | curl -sS --data-binary @- ${target}`;
  }
  return {async refresh(signal) {
    if (loaded) return () => {};
    const data = await get("nodes", {}, signal);
    nodes = data.nodes.filter(each => !each.error).map(each => each.address);
    return async () => {
      loaded = true;
      let chosen = args.node;
      if (!nodes.includes(chosen) && topic.input.value) {
        try { chosen = (await get(`topics/${encodeURIComponent(topic.input.value)}`, {})).node_rows[0]?.node; } catch { /* the first one */ }
      }
      set(node, nodes.map(each => h("option", {value: each, selected: each === chosen}, each)));
      if (topic.input.value) load(true); else { text(note, "Choose a topic."); suggest(topic.input); }
    };
  }, close() { tail?.abort(); }};
}

async function put(what) {
  try { await navigator.clipboard.writeText(what); toast("Copied"); } catch { toast("The browser does not allow copying here: it needs HTTPS or localhost", [], true); }
}

/** A word for a shell. */
const quoted = word => `'${word.replaceAll("'", "'\\''")}'`;

// A shell's argument has no zero bytes, and a terminal may act on other controls when they are pasted.
// eslint-disable-next-line no-control-regex
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/;

/** The bytes of a body. */
function data(message) {
  if (message.body !== undefined) return new TextEncoder().encode(message.body);
  return Uint8Array.from(atob(message.body_base64 ?? ""), char => char.charCodeAt(0));
}

function preview(message) {
  return message.body !== undefined ? message.body.slice(0, SHOWN) : `${[...data(message).slice(0, 32)].map(byte => byte.toString(16).padStart(2, "0")).join(" ")}…`;
}

/** How a body is shown: pretty JSON, text, or hexadecimal. */
function readable(message, raw) {
  if (message.body === undefined) return ["hex", hex(raw)];
  const start = message.body.trimStart()[0];
  if (start === "{" || start === "[") {
    try { return ["json", pretty(message.body)]; } catch { /* it only looks like JSON */ }
  }
  // eslint-disable-next-line no-control-regex
  return /[\x00-\x08\x0e-\x1f]/.test(message.body) ? ["hex", hex(raw)] : ["text", message.body];
}

/** Indented without being parsed to numbers: a number of twenty digits keeps them. */
function pretty(source) {
  JSON.parse(source);
  let out = "", depth = 0;
  for (const token of source.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? []) {
    if (token === "{" || token === "[") out += token + "\n" + "  ".repeat(++depth);
    else if (token === "}" || token === "]") out = out.trimEnd().endsWith(token === "}" ? "{" : "[") && !out.trimEnd().endsWith('"') ? out.trimEnd() + token + (depth--, "") : `${out}\n${"  ".repeat(--depth)}${token}`;
    else if (token === ",") out += `,\n${"  ".repeat(depth)}`;
    else out += token === ":" ? ": " : token;
  }
  return out;
}

function hex(raw) {
  const lines = [];
  for (let at = 0; at < Math.min(raw.length, HEX); at += 16) {
    const part = [...raw.slice(at, at + 16)];
    lines.push(`${at.toString(16).padStart(6, "0")}  ${part.map(byte => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47)}  ${part.map(byte => byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".").join("")}`);
  }
  if (raw.length > HEX) lines.push(`… ${count(raw.length - HEX)} more bytes: download them`);
  return lines.join("\n");
}

function download(message, raw) {
  const link = h("a", {href: URL.createObjectURL(new Blob([raw], {type: "application/octet-stream"})), download: `${message.id}.bin`});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

