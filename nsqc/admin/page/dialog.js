// Questions and results.
import {h, set} from "./dom.js";
import {plural} from "./format.js";

/**
 * Asks. title, lines: what will happen; fields: [{name, label, value, options, type, limits, required, hint, unit, help, group}]; name: what has to
 * be typed, for what cannot be undone; danger; preview(values): a promise of lines. Resolves to the values, or null.
 */
export function ask({title, lines = [], fields = [], name = "", verb, danger = false, preview = null}) {
  return new Promise(resolve => {
    const inputs = new Map();
    const typed = name && h("input", {autocomplete: "off", spellcheck: "false", "aria-describedby": "typed-hint"});
    const ok = h("button", {class: `primary${danger ? " danger" : ""}`, type: "submit"}, verb);
    const out = h("div", {"aria-live": "polite"});
    const rows = fields.map(field => {
      const input = field.options
        ? h("select", {}, field.options.map(([value, label]) => h("option", {value, selected: value === field.value}, label)))
        : field.type === "area" ? h("textarea", {spellcheck: "false"}, field.value ?? "")
        : h("input", {type: field.type ?? "text", value: field.value ?? "", placeholder: field.hint, ...field.limits, autocomplete: "off", spellcheck: "false"});
      if (field.required) input.required = true;
      if (field.type === "checkbox") { input.checked = Boolean(field.value); input.removeAttribute("placeholder"); }
      inputs.set(field.name, input);
      input.addEventListener("input", check);
      input.addEventListener("change", look);
      return h("label", {class: field.type === "checkbox" ? "check" : "field"}, field.type === "checkbox" ? [input, field.label]
        : [h("span", {}, field.label), field.unit ? h("span", {class: "measured"}, input, h("span", {}, field.unit)) : input, field.help && h("small", {}, field.help)]);
    });
    const form = h("form", {method: "dialog", submit: finish}, h("h2", {id: "dialog-title"}, title), h("div", {class: "body"}, lines.map(line => h("p", {}, line)), gathered(fields, rows), out),
      typed && h("label", {class: "field"}, h("span", {id: "typed-hint"}, "Type ", h("b", {class: "mono"}, name), " to confirm"), typed),
      h("div", {class: "buttons"}, h("button", {type: "button", click: () => done(null)}, "Cancel"), ok));
    const box = h("dialog", {"aria-labelledby": "dialog-title", cancel: event => { event.preventDefault(); done(null); }}, form);
    if (typed) typed.addEventListener("input", check);
    let settled = false, asked = 0;

    function values() {
      const found = {};
      for (const [key, input] of inputs) found[key] = input.type === "checkbox" ? input.checked : input.value;
      if (typed) found.confirm = typed.value;
      return found;
    }
    function check() { ok.disabled = Boolean(typed && typed.value !== name) || !form.checkValidity(); }
    function finish(event) { event.preventDefault(); if (!ok.disabled) done(values()); }
    function done(result) {
      if (settled) return;
      settled = true;
      box.close();
      box.remove();
      resolve(result);
    }
    async function look() {
      if (!preview) return;
      const number = ++asked;
      set(out, h("p", {class: "dim"}, "Looking…"));
      let found;
      try { found = await preview(values()); } catch (error) { found = [h("p", {class: "bad"}, error.message)]; }
      if (number === asked) set(out, found);
    }
    document.body.append(box);
    check();
    box.showModal();
    (form.querySelector("input, select, textarea") ?? ok).focus();
    look();
  });
}

/** The rows of a form, in boxes by group. */
function gathered(fields, rows) {
  const found = [];
  fields.forEach((field, at) => {
    if (!field.group) { found.push(rows[at]); return; }
    if (field.group !== fields[at - 1]?.group) found.push(h("fieldset", {}, h("legend", {}, field.group)));
    found.at(-1).append(rows[at]);
  });
  return found;
}

const LONG_MS = 15000, SHORT_MS = 5000, MOST = 5;

/** Shows what came of a change. results: of the API, or none. */
export function toast(title, results = [], failed = results.some(result => !result.ok)) {
  const holder = document.getElementById("toasts");
  const close = () => box.remove();
  const shown = failed ? results : results.slice(0, 8);
  const box = h("div", {class: `toast${failed ? " bad" : ""}`},
    h("div", {}, h("strong", {}, title), h("button", {type: "button", "aria-label": "Dismiss", click: close}, "×")),
    results.length ? h("ul", {}, shown.map(result => h("li", {}, h("span", {class: result.ok ? "dim" : "bad", "aria-hidden": "true"}, result.ok ? "✓" : "✕"),
      h("span", {}, h("span", {class: "mono"}, result.target), result.kind === "nsqlookupd" ? " (lookup)" : "", ` – ${result.message || (result.ok ? "done" : "failed")}`)))) : null);
  holder.append(box);
  while (holder.children.length > MOST) holder.firstChild.remove();
  let timer = setTimeout(close, failed ? LONG_MS : SHORT_MS);
  box.addEventListener("pointerenter", () => clearTimeout(timer));
  box.addEventListener("pointerleave", () => { timer = setTimeout(close, SHORT_MS); });
}

/** The title of results. */
export function summary(what, results) {
  const bad = results.filter(result => !result.ok).length;
  if (!results.length) return `${what}: nothing to do`;
  return bad ? `${what}: failed on ${bad} of ${plural(results.length, "server")}` : what;
}
