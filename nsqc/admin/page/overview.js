import {h, show, text} from "./dom.js";
import {get, session} from "./api.js";
import {chart} from "./chart.js";
import {age, count, plural, rate} from "./format.js";
import {card, columns, concerns, head, p99, ranges, tiles, unmeasured} from "./parts.js";
import {table} from "./table.js";
import {nodeColumns} from "./nodes.js";

export function overview(root, args, tools) {
  const title = head("Overview");
  if (!session.sees_any) {
    root.append(title.element, card("Your permissions", h("div", {class: "pad"}, h("ul", {class: "mono"}, session.grants.map(each => h("li", {}, each))),
      h("p", {}, "Topics, channels and their numbers are shown to users with the grant ", h("code", {}, "stats"), "."))).element);
    return {async refresh(signal) { await get("session", {}, signal); return () => {}; }};
  }
  const numbers = tiles([["Published /s", data => rate(data.came)], ["Finished /s", data => rate(data.went)], ["Depth", data => count(data.depth)],
    ["In flight", data => count(data.in_flight)], ["Oldest", data => age(data.oldest)], ["p99 latency", p99],
    ["Topics", data => count(data.topics)], ["Channels", data => count(data.channels)], ["Consumers", data => count(data.clients)],
    ["Nodes", data => data.answering === data.nodes ? count(data.nodes) : `${data.answering} of ${data.nodes}`, data => data.answering < data.nodes ? "bad" : ""]]);
  const hint = unmeasured(), part = h("p", {class: "hint warn", hidden: true});
  const range = ranges(args, tools);
  title.actions.append(range.element);
  const list = concerns(12), attention = card("Needs attention", list.element);
  const rates = chart("Messages per second", [{key: "came", name: "published"}, {key: "went", name: "finished"}], rate);
  const depths = chart("Messages", [{key: "depth", name: "waiting"}, {key: "in_flight", name: "in flight"}], count);
  const busy = table({caption: "Busiest topics", id: row => row.name, empty: "No topics yet: publish to one and it appears here.",
    columns: [columns.topic, columns.came, columns.went, columns.depth, columns.spark].map(unsorted)});
  const deep = table({caption: "Deepest topics", id: row => row.name, empty: "Nothing waits.",
    columns: [columns.topic, columns.depth, columns.in_flight, columns.clients, columns.oldest].map(unsorted)});
  const nodes = table({caption: "Nodes", id: row => row.address, empty: "No node has registered.", columns: nodeColumns});
  const nodeCard = card("Nodes", nodes.element), others = h("a", {href: "nodes", hidden: true});
  nodeCard.tools.append(others);
  root.append(title.element, numbers.element, part, hint.element, attention.element, session.sees_all ? h("div", {class: "two"}, rates.element, depths.element) : "",
    h("div", {class: "two"}, card("Busiest topics", busy.element).element, card("Deepest topics", deep.element).element), nodeCard.element);
  return {async refresh(signal) {
    const data = await get("overview", {range: range.value()}, signal);
    return () => {
      numbers.update(data.totals);
      show(part, data.totals.answering < data.totals.nodes);
      text(part, `${data.totals.answering} of ${data.totals.nodes} nodes answer: the sums have the last known values of the others.`);
      if (session.sees_all) hint.update(data.totals);
      list.update(data.attention, data.attention_counts);
      rates.update(data.series);
      depths.update(data.series);
      busy.update(data.busiest);
      deep.update(data.deepest);
      nodes.update(data.nodes);
      show(others, data.totals.nodes > data.nodes.length);
      text(others, `All ${plural(data.totals.nodes, "node")}`);
    };
  }};
}

const unsorted = column => ({...column, sort: false});
