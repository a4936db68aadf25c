import {h, set, show} from "./dom.js";
import {get, session, url} from "./api.js";
import {disconnect, empty, pause, remove, seek} from "./actions.js";
import {rules} from "./rules.js";
import {chart} from "./chart.js";
import {age, count, now, plural, rate, span} from "./format.js";
import {button, card, columns, deadLetters, head, p99, problems, ranges, stale, tiles, toggle, unmeasured} from "./parts.js";
import {table} from "./table.js";

export function channel(root, {topic, channel: name, ...args}, tools) {
  let latest = null, before = null;
  const title = head(name, [["Topics", "topics"], [topic, url.topic(topic)]]);
  const paused = toggle("Unpause", "Pause", is => pause(topic, name, is)), move = button("Move…", () => seek(topic, name));
  const look = h("a", {class: "button", href: url.messages({topic, channel: name})}, "Messages");
  const steer = [paused.element, move, button("Empty…", () => empty(topic, name, latest?.depth ?? 0), "danger"),
    button("Delete…", () => remove(topic, name, [`${plural(latest?.depth ?? 0, "waiting message")} and ${plural(latest?.consumers.length ?? 0, "consumer")}.`]), "danger")];
  const change = button("Rules…", () => rules(topic, name, latest?.node_rules ?? []));
  const range = ranges(args, tools);
  title.actions.append(range.element, look, ...steer);
  const hint = unmeasured(), dead = h("p", {class: "note"}), ruled = table({caption: "Delivery rules", id: row => `${row.key} ${row.value}`, empty: "None: it delivers like a channel of nsqd.", columns: [
    {key: "key", label: "Rule", text: row => row.key}, {key: "value", label: "Value", text: row => row.value}, {key: "nodes", label: "Nodes", wrap: true, text: row => row.nodes}].map(each => ({...each, sort: false}))});
  const numbers = tiles([["In /s", data => rate(data.came)], ["Finished /s", data => rate(data.went)], ["Depth", data => count(data.depth)], ["On disk", data => count(data.backend)], ["In flight", data => count(data.in_flight)],
    ["Deferred", data => count(data.deferred)], ["Oldest", data => age(data.oldest)], ["p99 latency", p99], ["Requeued /s", data => rate(data.requeued)], ["Timed out /s", data => rate(data.timed_out)]]);
  const rates = chart("Messages per second", [{key: "came", name: "in"}, {key: "went", name: "finished"}], rate);
  const depths = chart("Messages", [{key: "depth", name: "waiting"}, {key: "in_flight", name: "in flight"}], count);
  const clients = table({caption: "Consumers", id: row => `${row.node} ${row.remote_address}`, empty: "No consumer: messages wait until one connects.", columns: [
    {key: "client_id", label: "Client", text: row => row.client_id || row.hostname, wrap: true}, {key: "remote_address", label: "Address", text: row => row.remote_address, opt: true}, columns.node,
    {key: "ready_count", label: "RDY", num: true, text: ready, tone: row => row.ready_count && !row.backs_off ? "" : "warn"},
    {key: "in_flight_count", label: "In flight", num: true, text: row => count(row.in_flight_count), tone: row => row.ready_count && row.in_flight_count >= row.ready_count ? "warn" : ""},
    {key: "rate", label: "Finished /s", num: true, text: row => rate(row.rate)}, {key: "finish_count", label: "Finished", num: true, text: row => count(row.finish_count)}, {key: "requeue_count", label: "Requeued", num: true, opt: true, text: row => count(row.requeue_count)},
    ...session.may_change && session.may_extend ? [{key: "actions", label: "", sort: false, num: true, version: row => String(row.may_change), node: (row, current) => row.may_change ? button("Close…", () => disconnect(topic, name, current()), "plain danger") : ""}] : [],
    {key: "connect_ts", label: "Connected", num: true, opt: true, text: row => age(row.connect_ts)}, {key: "user_agent", label: "Agent", opt: true, wrap: true, text: row => row.user_agent},
    {key: "with", label: "With", sort: false, opt: true, text: row => [row.tls && row.tls_version, row.deflate && "deflate", row.snappy && "snappy", row.authed && (row.auth_identity || "auth"), row.sample_rate && `${row.sample_rate} %`].filter(Boolean).join(", ") || "–"}]});
  const held = table({caption: "Longest in flight", id: row => `${row.node} ${row.id}`, empty: "", columns: [{key: "for", label: "Held for", num: true, text: row => age(row.delivered / 1e9)},
    {key: "who", label: "By", wrap: true, text: row => row.client ? `${row.client.client_id || row.client.hostname} (${row.client.remote_address})` : "a consumer that has left"}, {key: "attempts", label: "Attempt", num: true, text: row => count(row.attempts)},
    {key: "due", label: "Times out in", num: true, text: row => row.due ? span(row.due / 1e9 - now()) : "–"}, {key: "id", label: "Message", opt: true, text: row => row.id}, columns.node].map(each => ({...each, sort: false}))});
  const nodes = table({caption: "Nodes", id: row => row.node, empty: "No node has it.", columns: [columns.node, columns.depth, columns.backend, columns.in_flight, columns.deferred, columns.requeues, columns.timeouts, columns.messages, columns.clients, columns.paused]});
  const places = table({caption: "Positions in the log", id: row => row.node, empty: "", columns: [columns.node, {key: "position", label: "Position", num: true, text: row => count(row.position)},
    {key: "oldest_unfinished", label: "Oldest unfinished", num: true, text: row => count(row.oldest_unfinished)}, {key: "lag_messages", label: "Lag", num: true, text: row => count(row.lag_messages)}, {key: "lag_seconds", label: "Lag, time", num: true, text: row => span(row.lag_seconds)}]});
  const faults = problems(), heldCard = card("Longest in flight", held.element), placeCard = card("Position in the log", places.element), ruleCard = card("Delivery rules", ruled.element, dead), who = card("Consumers", clients.element);
  ruleCard.tools.append(change);
  root.append(title.element, faults.element, numbers.element, hint.element, h("div", {class: "two"}, rates.element, depths.element), who.element, heldCard.element, placeCard.element, ruleCard.element, card("Nodes", nodes.element).element);

  function withRates(rows) {
    const at = now(), counts = new Map(rows.map(row => [`${row.node} ${row.remote_address}`, row.finish_count]));
    const found = rows.map(row => {
      const past = before?.counts.get(`${row.node} ${row.remote_address}`);
      return {...row, rate: past === undefined || at - before.at < 0.5 ? null : Math.max(0, row.finish_count - past) / (at - before.at)};
    });
    before = {at, counts};
    return found;
  }
  return {async refresh(signal) {
    const data = latest = await get(`topics/${encodeURIComponent(topic)}/${encodeURIComponent(name)}`, {range: range.value()}, signal);
    const stuck = !data.paused && data.clients && data.still_since && now() - data.still_since > 60;
    return () => {
      title.badges([...stale(data), ...backingOff(data.consumers), ...data.paused ? [["paused", "warn"]] : [], ...stuck ? [[`nothing finished for ${age(data.still_since)}`, "bad"]] : [], ...!data.clients && data.depth ? [["no consumer", "warn"]] : []]);
      paused.update(Boolean(data.paused));
      numbers.update(data);
      rates.update(data.series);
      depths.update(data.series);
      clients.update(withRates(data.consumers).map(row => ({...row, may_change: data.may_change})));
      held.update(data.held.slice(0, 10));
      heldCard.element.hidden = !data.held.length;
      nodes.update(data.node_rows);
      places.update(data.positions);
      placeCard.element.hidden = !data.positions.length;
      for (const each of steer) each.hidden = !data.may_change;
      move.hidden ||= !data.positions.length || !session.may_extend;
      show(look, data.may_read);
      hint.update(data);
      ruled.update(grouped(data.node_rules));
      show(dead, Boolean(data.dead_topic));
      if (data.dead_topic) set(dead, "Dead letters: ", deadLetters(data));
      ruleCard.element.hidden = !data.node_rules.length;
      change.hidden = !(data.may_change && session.may_extend);
      faults.update(data.errors);
    };
  }};
}

/** RDY, and since when it is low. */
function ready(row) {
  const since = row.idle_since ? ` ${age(row.idle_since)}` : "";
  return row.backs_off ? `${count(row.ready_count)}, backing off${since && ` for${since}`}` : row.ready_count ? count(row.ready_count) : `0${since && ` for${since}`}`;
}

/** A badge for consumers that take nothing, or little, since their handlers fail. */
function backingOff(consumers) {
  const off = consumers.filter(row => row.backs_off && row.idle_since);
  if (!off.length) return [];
  const who = off.length < consumers.length ? `${off.length} of ${plural(consumers.length, "consumer")}` : plural(off.length, "consumer");
  return [[`${who} backing off after failures, for ${age(Math.min(...off.map(row => row.idle_since)))}`, "warn"]];
}

/** The rules that are set, a row for each value, with the nodes that have it. */
function grouped(nodes) {
  const rows = new Map(), shown = nodes.filter(node => node.set);
  for (const node of shown) for (const [key, value] of Object.entries(node.set)) {
    const id = `${key} ${value}`, row = rows.get(id) ?? {key, value: String(value), of: []};
    row.of.push(node.node);
    rows.set(id, row);
  }
  return [...rows.values()].map(row => ({...row, nodes: row.of.length === shown.length ? "all" : row.of.join(", ")}));
}
