import {h, show, text} from "./dom.js";
import {get, session, url} from "./api.js";
import {create, empty, letters, pause, publish, remove, tombstone} from "./actions.js";
import {rules} from "./rules.js";
import {chart} from "./chart.js";
import {age, bytes, count, date, plural, rate, span} from "./format.js";
import {button, card, columns, filter, head, p99, problems, ranges, stale, tiles, toggle, unmeasured} from "./parts.js";
import {pager, table} from "./table.js";

const LIMIT = 50, CHANNELS = 200;

export function topics(root, args, {refresh, remember}) {
  let state = {by: args.sort || "name", desc: args.order === "desc"}, offset = Number(args.offset) || 0, wanted = args.search || "";
  const title = head("Topics");
  if (session.may_change) title.actions.append(button("New topic…", () => create()));
  const search = filter("Filter by name", wanted, value => { wanted = value; offset = 0; moved(); });
  const list = table({caption: "Topics", id: row => row.name, empty: session.sees_any ? "No topic matches." : "None that you may see: that needs the grant stats.", sort: state,
    columns: [columns.topic, columns.came, columns.went, columns.depth, columns.in_flight, columns.messages, columns.channels, columns.clients, columns.oldest,
      {...columns.p99, sort: false}, columns.paused, columns.spark],
    onSort: by => { state = {by, desc: state.by === by ? !state.desc : by !== "name"}; offset = 0; moved(); }});
  const pages = pager(by => { offset = Math.max(0, offset + by * LIMIT); moved(); });
  const found = h("div", {}, list.element, pages.element), box = card("Topics", search.fault, found);
  box.tools.append(search.input);
  root.append(title.element, box.element);

  function moved() {
    remember({search: wanted, sort: state.by === "name" ? "" : state.by, order: state.desc ? "desc" : "", offset: offset || ""});
    refresh();
  }
  return {async refresh(signal) {
    const data = await search.ask(get("topics", {search: wanted, sort: state.by, order: state.desc ? "desc" : "asc", offset, limit: LIMIT}, signal));
    return () => {
      show(found, Boolean(data));
      if (!data) { box.title.textContent = "Topics"; return; }
      box.title.textContent = plural(data.total, "topic");
      list.update(data.topics, state);
      pages.update(data.offset, LIMIT, data.total);
    };
  }};
}

export function topic(root, {topic: name, ...args}, tools) {
  const title = head(name, [["Topics", "topics"]]);
  let latest = null, offset = 0;
  const paused = toggle("Unpause", "Pause", is => pause(name, "", is));
  const look = h("a", {class: "button", href: url.messages({topic: name})}, "Messages"), change = button("Rules…", () => rules(name, "", latest?.node_rules ?? []));
  const steer = [paused.element, button("New channel…", () => create(name)), change, button("Empty…", () => empty(name, "", latest?.waiting ?? 0), "danger"),
    button("Delete…", () => remove(name, "", lost()), "danger")];
  const send = button("Publish…", () => publish(name, latest.node_rows.filter(row => !row.seen_at).map(row => row.node)));
  const range = ranges(args, tools);
  title.actions.append(range.element, look, send, ...steer);
  /** What redriving letters in memory needs to know; null: no node keeps the topic there, or in no channel. */
  const inMemory = () => {
    const nodes = latest.node_rules.filter(row => row.rules && !latest.logs.some(log => log.node === row.node) && latest.node_rows.some(each => each.node === row.node)).map(row => row.node);
    const sources = latest.channel_rows.map(row => row.name);
    return nodes.length && sources.length ? {nodes, sources, targets: latest.dead_letters_of.map(row => `${row.topic}/${row.channel}`)} : null;
  };
  const lost = () => [`${plural(latest?.channels ?? 0, "channel")} with ${plural(latest?.depth ?? 0, "waiting message")} and ${plural(latest?.clients ?? 0, "consumer")}.`];
  const numbers = tiles([["Published /s", data => rate(data.came)], ["Finished /s", data => rate(data.went)], ["Depth", data => count(data.depth)], ["In the topic", data => count(data.waiting)],
    ["In flight", data => count(data.in_flight)], ["Deferred", data => count(data.deferred)], ["Oldest", data => age(data.oldest)], ["p99 latency", p99], ["Messages", data => count(data.messages)], ["Published", data => bytes(data.bytes)]]);
  const rates = chart("Messages per second", [{key: "came", name: "published"}, {key: "went", name: "finished"}], rate);
  const depths = chart("Messages", [{key: "depth", name: "waiting"}, {key: "in_flight", name: "in flight"}], count);
  const channels = table({caption: `Channels of ${name}`, id: row => row.name, empty: `No channel: ${name.endsWith(".dead") ? "dead letters wait until they are redriven or dropped" : "messages wait in the topic until there is one"}.`, columns: [columns.channel, columns.came, columns.went, columns.depth, columns.backend, columns.in_flight, columns.deferred,
    columns.requeues, columns.timeouts, columns.clients, columns.oldest, columns.p99, columns.dead, columns.paused, {...columns.spark, label: "Depth, last hour"}]});
  const pages = pager(by => { offset = Math.max(0, offset + by * CHANNELS); tools.refresh(); });
  const nodes = table({caption: `Nodes of ${name}`, id: row => row.node, empty: "No node has it.", columns: [columns.node, {key: "waiting", label: "In the topic itself", num: true, text: row => count(row.waiting)}, columns.depth, columns.backend, columns.in_flight, columns.messages, columns.bytes, columns.channels, columns.paused,
    {key: "mark", label: "", sort: false, version: row => String(row.hidden), node: row => row.hidden ? h("span", {class: "badge warn"}, "tombstoned") : ""},
    ...session.mode === "lookupd" && session.may_change ? [{key: "actions", label: "", sort: false, num: true, version: row => String(row.may_change), node: (row, current) => row.may_change ? button("Remove…", () => tombstone(name, current().node), "plain danger") : ""}] : []]});
  const feeders = table({caption: `Channels whose dead letters come to ${name}`, id: row => `${row.topic} ${row.channel}`, empty: "No rule names this topic now.", columns: [{key: "topic", label: "Topic", text: row => row.topic, link: row => url.topic(row.topic)},
    {key: "channel", label: "Channel", text: row => row.channel, link: row => url.channel(row.topic, row.channel)}, {key: "waiting", label: "Waiting", num: true, sort: false, text: row => row.waiting ? `${count(row.waiting.count)}${row.waiting.more ? "+" : ""}` : "–"}, {key: "dead_letters", label: "Moved in all", num: true, text: row => count(row.dead_letters)},
    {key: "actions", label: "", sort: false, num: true, version: row => `${row.may_redrive} ${row.may_drop}`, node: (row, current) => [
      row.may_redrive ? button("Redrive…", () => letters("redrive", name, {origin: `${current().topic}/${current().channel}`, memory: inMemory()}), "plain") : "",
      row.may_drop ? button("Drop…", () => letters("drop", name, {origin: `${current().topic}/${current().channel}`, memory: inMemory()}), "plain danger") : ""]}]});
  const logs = table({caption: `Log of ${name}`, id: row => row.node, empty: "", columns: [columns.node,
    {key: "first", label: "First offset", num: true, text: row => count(row.log?.first_offset)}, {key: "next", label: "Next offset", num: true, text: row => count(row.log?.next_offset)},
    {key: "span", label: "Since", text: row => row.log?.first_time ? date(row.log.first_time / 1e9) : "–", opt: true}, {key: "bytes", label: "Size", num: true, text: row => bytes(row.log?.bytes)}, {key: "local", label: "On its disk", num: true, opt: true, text: row => bytes(row.log?.local_bytes)},
    {key: "segments", label: "Segments", num: true, opt: true, text: row => count(row.log?.segments)}, {key: "retain", label: "Retention", text: row => retention(row.rules ?? {}), opt: true},
    {key: "sync", label: "Sync", opt: true, text: row => row.log?.sync ?? "–"}, {key: "damaged", label: "Damaged", num: true, text: row => row.error ?? count(row.log?.damaged), tone: row => row.error || row.log?.damaged ? "bad" : ""}]});
  const lags = table({caption: `Positions in the log of ${name}`, id: row => `${row.node} ${row.channel_name}`, empty: "", columns: [{key: "channel_name", label: "Channel", text: row => row.channel_name, link: row => url.channel(name, row.channel_name)}, columns.node,
    {key: "position", label: "Position", num: true, text: row => count(row.position)}, {key: "oldest_unfinished", label: "Oldest unfinished", num: true, opt: true, text: row => count(row.oldest_unfinished)},
    {key: "lag_messages", label: "Lag", num: true, text: row => count(row.lag_messages)}, {key: "lag_seconds", label: "Lag, time", num: true, text: row => span(row.lag_seconds)}]});
  const faults = problems(), hint = unmeasured(), ids = h("p", {class: "hint", hidden: true}), feedCard = card("Dead letters of", feeders.element), logCard = card("Log", logs.element), lagCard = card("Positions in the log", lags.element);
  const redriveAll = button("Redrive all…", () => letters("redrive", name, {memory: inMemory()})), dropAll = button("Drop all…", () => letters("drop", name, {memory: inMemory()}), "danger");
  feedCard.tools.append(redriveAll, dropAll);
  root.append(title.element, faults.element, numbers.element, hint.element, ids, feedCard.element, h("div", {class: "two"}, rates.element, depths.element), card("Channels", channels.element, pages.element).element,
    card("Nodes", nodes.element).element, logCard.element, lagCard.element);
  return {async refresh(signal) {
    const data = latest = await get(`topics/${encodeURIComponent(name)}`, {range: range.value(), offset, limit: CHANNELS}, signal);
    return () => {
      const told = data.logs.filter(log => log.log);
      title.badges([...stale(data), ...data.paused ? [["paused", "warn"]] : [], ...data.logs.some(log => log.log) ? [["log", "accent"]] : [], ...data.damaged ? [[`${count(data.damaged)} damaged`, "bad"]] : []]);
      paused.update(Boolean(data.paused));
      for (const each of steer) each.hidden = !data.may_change;
      change.hidden ||= !session.may_extend || !data.node_rules.length;
      show(look, data.may_read);
      show(send, data.may_publish && data.node_rows.some(row => !row.seen_at));
      // Nobody consumes a topic of dead letters: its messages are those of its log.
      look.href = url.messages({topic: name, ...told.length && (data.dead_letters_of.length || name.endsWith(".dead")) ? {state: "history"} : {}});
      hint.update(data);
      show(ids, data.publish_ids !== null);
      text(ids, `Publish ids: ${count(data.publish_ids)} remembered, ${count(data.deduplicated)} repeats not stored, ${count(data.forgotten_ids)} forgotten early.`);
      numbers.update(data);
      rates.update(data.series);
      depths.update(data.series);
      channels.update(data.channel_rows);
      pages.update(offset, CHANNELS, data.channels);
      nodes.update(data.node_rows.map(row => ({...row, hidden: data.tombstones.includes(row.node), may_change: data.may_change})));
      const may_drop = data.may_change && session.may_extend && told.length > 0, may_redrive = session.may_redrive && (told.length > 0 || inMemory() !== null);
      feeders.update(data.dead_letters_of.map(row => ({...row, may_redrive: may_redrive && row.may_publish, may_drop})));
      feedCard.element.hidden = !data.dead_letters_of.length && !(name.endsWith(".dead") && told.length);
      show(redriveAll, may_redrive && session.publishes_all);
      show(dropAll, may_drop);
      logs.update(data.logs);
      logCard.element.hidden = !told.length;
      lags.update(told.flatMap(log => (log.log.channels ?? []).map(channel => ({...channel, node: log.node}))));
      lagCard.element.hidden = !told.some(log => log.log.channels?.length);
      faults.update(data.errors);
    };
  }};
}

function retention(rule) {
  const time = rule.retain_time && rule.retain_time !== "0s" ? rule.retain_time.replace(/(\D)0s$/, "$1").replace(/(\D)0m$/, "$1") : "";
  const size = rule.retain_bytes ? bytes(rule.retain_bytes) : "";
  return [time, size].filter(Boolean).join(", ") || (rule.storage ? "until finished" : "–");
}
