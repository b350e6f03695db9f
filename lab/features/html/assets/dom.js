// Elements from data. Text is always text, never markup.

export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A paragraph; nothing where there is nothing to be said.
export function paragraph(text, kind) {
  return text ? element("p", kind ? { class: kind } : {}, text) : "";
}

// The line of a source that the page shows.
export function findLine(at) {
  const [, name, number] = at.match(/([^/]*):(\d+)$/) ?? [];
  return document.querySelectorAll(`[data-source="${CSS.escape(name)}"]`)[number - 1];
}

// A link to the line of a source that the page shows; plain text for any other.
export function sourceLink(at) {
  const line = findLine(at);
  return line ? element("a", { href: `#${line.id}` }, at) : at;
}

export function chip(rank) {
  return element("span", { class: `chip rank-${rank}` }, `rank ${rank}`);
}
