// Elements from data. Text is always text, never markup.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name === "style") for (const [key, item] of Object.entries(value)) made.style.setProperty(key, item);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A link to the line of a source that the page shows; plain text for any other.
export function sourceLink(at) {
  const cut = at.lastIndexOf(":");
  const name = at.slice(0, cut).split("/").pop();
  const number = at.slice(cut + 1);
  const line = [...document.querySelectorAll(`[data-source="${CSS.escape(name)}"]`)][Number(number) - 1];
  return line ? element("a", { href: `#${line.id}` }, at) : element("span", {}, at);
}
