// Elements. All text goes in as text: nothing here ever reads HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element. props: attributes, and functions for events; children: elements, texts, or nothing. */
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  add(element, children);
  return element;
}

function add(element, children) {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

/** Replaces what is in an element. */
export function set(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** Sets a text, if it differs: the browser then has nothing to lay out. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

/** Shows or hides. */
export function show(element, is) {
  if (element.hidden === is) element.hidden = !is;
}
