// What a page shows, in its address: `#step-12&op=all_reduce&slow=1&range=1200-3400`. A link restores it.

const PAUSE_MS = 200; // browsers refuse an address that changes too often

export function makeAddress() {
  const readers = new Map();
  const values = new Map();
  let [timer, known] = [0, location.hash];

  function write() {
    timer = 0;
    if (location.hash !== known) return; // a reader changed it: `read` will hear of that
    const words = [...values].map(([name, value]) =>
      name === "step" ? `step-${value}` : `${name}=${encodeURIComponent(value)}`,
    );
    const page = location.href.split("#")[0];
    history.replaceState(null, "", words.length ? `${page}#${words.join("&")}` : page);
    known = location.hash;
  }

  // What an address says; an anchor of the page itself, such as a line of a source, says nothing.
  function read() {
    known = location.hash;
    for (const word of location.hash.slice(1).split("&")) {
      const [, step, name, value] = word.match(/^(?:step-(\d+)|(\w+)=(.*))$/) ?? [];
      const key = step ? "step" : name;
      if (!readers.has(key)) continue;
      const told = step ?? plain(value);
      values.set(key, told);
      readers.get(key)(told);
    }
  }

  return {
    // `take` is called with what an address says of a name.
    bind(name, take) {
      readers.set(name, take);
    },
    // Keep what is shown now; nothing where the value is empty.
    put(name, value) {
      if (value) values.set(name, String(value));
      else if (!values.delete(name)) return;
      if (!timer) timer = setTimeout(write, PAUSE_MS);
    },
    start() {
      addEventListener("hashchange", read);
      read();
    },
  };
}

export function linkTo(step) {
  return `${location.href.split("#")[0]}#step-${step}`;
}

function plain(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
