// One picture, drawn for the back row: large cells before and after the call, and the chunks that move between them.

const SVG = "http://www.w3.org/2000/svg";
const [NAME, VALUE, LABEL] = [34, 30, 25]; // sizes of letters, in pixels of a screen of 1920 x 1080
const LETTER = 0.602; // width of a letter of a monospaced font
const [HEAD, TEXT_ROW, MOST_LINES] = [76, 36, 24]; // more lines than that are bundled, or those of one rank are drawn
const [BOX, MOST_ROW, GAP] = [72, 146, 22];

// What a picture of `lab/features/pictures/svg.py` shows; null where it shows no tensors.
export function readScene(markup) {
  const drawing = new DOMParser().parseFromString(markup, "image/svg+xml").documentElement;
  const sides = [...drawing.querySelectorAll("[data-side]")];
  const captions = [...drawing.querySelectorAll("text.caption")];
  const isBefore = (text) => text.compareDocumentPosition(sides[0] ?? drawing) & Node.DOCUMENT_POSITION_FOLLOWING;
  const [told, judged] = [captions.filter(isBefore), captions.filter((text) => !isBefore(text))].map(join);
  const rows = [];
  for (const node of drawing.querySelectorAll("[data-side], text.left-out")) {
    if (!node.dataset?.side && node.localName === "text") {
      rows.push({ text: node.textContent });
      continue;
    }
    const rank = Number(node.dataset.rank);
    let row = rows.find((one) => one.rank === rank);
    if (!row) {
      row = { rank, colour: node.dataset.colour, before: [], after: [], words: {} };
      rows.push(row);
    }
    const boxes = [...node.querySelectorAll("[data-origins]")].map((box) => readBox(box, rank));
    row[node.dataset.side] = boxes;
    if (!boxes.length) row.words[node.dataset.side] = join([...node.querySelectorAll("text")]);
  }
  const isNew = (row, i) => row.rank !== undefined || rows.findIndex((one) => one.text === row.text) === i;
  const kept = rows.filter(isNew);
  return { drawing, told, judged, rows: kept, moves: kept.some((row) => row.before?.length || row.after?.length) };
}

function readBox(node, rank) {
  const [label, ...cells] = [...node.querySelectorAll("text")];
  const { origins, target } = node.dataset;
  return {
    rank,
    label: label.textContent,
    cells: cells.map((cell) => cell.textContent),
    origins: origins ? origins.split(" ").map(Number) : [],
    target: target ? Number(target) : null,
  };
}

function join(texts) {
  return texts.map((text) => text.textContent).join(" ");
}

// Draws a scene into an area of this size, as large as fits. Where all lines are too many, only those of one rank are
// drawn, and `focus` counts which.
export function drawScene(scene, width, height, focus) {
  const zoom = [1.7, 1.5, 1.3, 1.15].find((one) => fits(scene, width / one, height / one)) ?? 1;
  return draw(scene, width / zoom, height / zoom, focus);
}

function fits(scene, width, height) {
  const ranks = scene.rows.filter((row) => row.rank !== undefined);
  const texts = scene.rows.length - ranks.length;
  const { room } = measure(ranks, width);
  const whole = ["before", "after"].every((side) => place(ranks, side, (box) => box, 99).width <= room);
  return whole && height >= HEAD + TEXT_ROW * texts + 115 * ranks.length;
}

function measure(ranks, width) {
  const names = 44 + NAME * 0.62 * Math.max(...ranks.map(({ rank }) => `rank ${rank}`.length));
  const space = Math.max(150, width * 0.2);
  return { names, space, room: (width - names - space - 24) / 2 };
}

function draw(scene, width, height, focus) {
  const ranks = scene.rows.filter((row) => row.rank !== undefined);
  const rest = height - HEAD - TEXT_ROW * (scene.rows.length - ranks.length);
  const step = Math.max(BOX + GAP - 8, Math.min(MOST_ROW, rest / ranks.length));
  const tall = Math.min(112, step - GAP);
  const whole = Math.max(height, height - rest + step * ranks.length);
  const area = { viewBox: `0 0 ${width} ${whole}`, class: "scene", role: "img", "aria-label": scene.told };
  const svg = make("svg", area);
  const { names, space, room } = measure(ranks, width);
  const sides = { before: columns(ranks, "before", room), after: columns(ranks, "after", room) };
  const wide = { before: sides.before.width, after: sides.after.width };
  const between = Math.max(space, Math.min(width * 0.3, width - names - wide.before - wide.after - 24));
  const left = Math.max(12, (width - names - wide.before - between - wide.after) / 2);
  const at = { before: left + names, after: left + names + wide.before + between };
  const colours = new Map(ranks.map(({ rank, colour }) => [rank, colour]));
  let y = HEAD + Math.max(0, (rest - step * ranks.length) / 2);
  const [back, lines, front] = ["back", "lines", "front"].map((kind) => make("g", { class: kind }));
  for (const side of ["before", "after"]) back.append(text(side, at[side], y - 46, NAME, "side"));
  const boxes = [];
  for (const row of scene.rows) {
    if (row.rank === undefined) {
      back.append(text(row.text, left, y + 24, LABEL + 2, "quiet"));
      y += TEXT_ROW;
      continue;
    }
    back.append(make("rect", { x: left, y, width: 9, height: tall, rx: 3, fill: row.colour }));
    back.append(text(`rank ${row.rank}`, left + 20, y + tall / 2 + 12, NAME, "name"));
    for (const side of ["before", "after"]) {
      if (row.words[side]) back.append(text(row.words[side], at[side], y + tall / 2 + 10, LABEL + 4, `quiet ${side}`));
      const shown = sides[side].rows.get(row.rank);
      for (const box of shown) {
        const place = { ...box, side, x: at[side] + box.x, y, tall };
        if (box.gap) {
          front.append(text("…", place.x, y + tall / 2 + 8, LABEL, `quiet ${side}`));
          continue;
        }
        boxes.push(place);
        if (side === "after") back.append(make("rect", { ...frame(place), class: "awaited" }));
        front.append(drawBox(place, colours));
      }
    }
    y += step;
  }
  const flows = findFlows(boxes, colours);
  const bundle = flows.length > MOST_LINES && bundles(flows);
  const senders = [...new Set(flows.map((flow) => flow.origin))];
  const sender = senders[((focus % senders.length) + senders.length) % senders.length];
  const few = flows.length > MOST_LINES && !bundle ? flows.filter(({ origin }) => origin === sender) : flows;
  const hub = {
    x: at.before + wide.before + between / 2,
    y: (Math.min(...boxes.map((b) => b.y)) + y - step + tall) / 2,
  };
  const ends = { left: at.before + wide.before, right: at.after, gap: step - tall };
  if (bundle) drawBundle(lines, flows, hub, boxes);
  else for (const flow of few) lines.append(line(route(flow, ends, few), flow.colour, true));
  lines.append(...lines.querySelectorAll(".head")); // no other line covers them
  svg.append(back, lines, front);
  const paths = flows.map((flow) => ({ ...flow, path: bundle ? through(flow, hub) : route(flow, ends, flows) }));
  return { svg, flows: paths, sender: few.length < flows.length ? sender : null, bundled: bundle };
}

// The boxes of each rank on a side with their places: fewer values, then fewer boxes, until all fit.
function columns(ranks, side, room) {
  for (const most of [99, 6, 4, 3, 2, 1]) {
    const fitted = place(ranks, side, (box) => box, most);
    if (fitted.width <= room) return fitted;
  }
  for (let count = Math.max(...ranks.map((row) => row[side].length)); count > 1; count--) {
    const keep = (_, i, all) => i < count - 1 || i === all.length - 1;
    const fitted = place(ranks, side, (box, i, all) => (keep(box, i, all) ? box : null), 1);
    if (fitted.width <= room || count === 2) return fitted;
  }
  return place(ranks, side, (box) => box, 1);
}

function place(ranks, side, choose, most) {
  const rows = ranks.map((row) => [row.rank, row[side].map(choose).map((box) => box && shorten(box, most))]);
  const widths = [];
  for (const [, row] of rows) {
    row.forEach((box, i) => {
      widths[i] = Math.max(widths[i] ?? 0, box ? breadth(box) : 0);
    });
  }
  const starts = [];
  let x = 0;
  widths.forEach((width, i) => {
    starts[i] = x;
    x += width ? width + 8 : 0;
    if (!width && widths[i - 1]) x += 34;
  });
  const placed = rows.map(([rank, row]) => [
    rank,
    row.flatMap((box, i) =>
      box
        ? { ...box, x: starts[i], width: widths[i], first: i === 0, last: i === row.length - 1 }
        : row[i - 1]
          ? { gap: true, x: starts[i] }
          : [],
    ),
  ]);
  return { rows: new Map(placed), width: Math.max(140, x - 8) };
}

// Keeps the first values, and those that are wrong.
function shorten(box, most) {
  const { cells } = box;
  if (cells.length <= most) return box;
  const wrong = cells.findIndex((cell, i) => i >= most - 1 && cell.startsWith("✘"));
  const kept = cells[wrong < 0 ? Math.max(0, most - 2) : wrong];
  return { ...box, cells: most > 1 ? [...cells.slice(0, most - 2), kept, "…"] : [`${kept} …`] };
}

function breadth({ label, cells }) {
  const widest = Math.max(2, ...cells.map((cell) => cell.length));
  return Math.max(cells.length * (widest * VALUE * LETTER + 18), label.length * LABEL * LETTER + 20);
}

function frame({ x, y, width, tall }) {
  return { x, y, width, height: tall, rx: 5 };
}

function drawBox(box, colours) {
  const { x, y, width, tall, side, label, cells, origins } = box;
  const group = make("g", { class: `cell ${side}` });
  const tones = origins.map((origin) => colours.get(origin) ?? "var(--soft)");
  const one = tones.length === 1;
  group.append(make("rect", { ...frame(box), class: "ground" }));
  group.append(
    make("rect", {
      ...frame(box),
      fill: one ? tones[0] : "none",
      "fill-opacity": 0.2,
      stroke: one ? tones[0] : "var(--soft)",
    }),
  );
  tones.forEach((tone, i) => {
    group.append(
      make("rect", { x: x + (i * width) / tones.length, y, width: width / tones.length, height: 7, fill: tone }),
    );
  });
  group.append(text(label, x + 10, y + 7 + LABEL, LABEL, "label"));
  const share = width / cells.length;
  cells.forEach((cell, i) => {
    const wrong = cell.startsWith("✘") ? " bad" : "";
    const made = text(cell, x + share * (i + 0.5), y + tall - (tall - 31 - VALUE) / 2 - 5, VALUE, `value${wrong}`);
    made.setAttribute("text-anchor", "middle");
    group.append(made);
  });
  return group;
}

// Each chunk that moves: from the cell that holds it to the cell that gets it.
function findFlows(boxes, colours) {
  const sources = Map.groupBy(
    boxes.filter(({ side }) => side === "before"),
    ({ rank }) => rank,
  );
  return boxes
    .filter(({ side }) => side === "after")
    .flatMap((to) =>
      to.origins.flatMap((origin) => {
        const own = sources.get(origin);
        if (!own) return [];
        const from =
          own.find(({ target }) => target === to.rank) ?? own.find(({ label }) => label === to.label) ?? own[0];
        return { origin, from, to, colour: colours.get(origin) };
      }),
    );
}

// Whether all that comes in goes to all: then it can pass through one point.
function bundles(flows) {
  const [from, to] = [new Set(flows.map((flow) => flow.from)), new Set(flows.map((flow) => flow.to.rank))];
  const pairs = new Set(flows.map((flow) => `${flow.origin} ${flow.to.rank}`));
  return pairs.size === from.size * to.size;
}

function drawBundle(lines, flows, hub, boxes) {
  for (const flow of new Map(flows.map((one) => [one.from, one])).values())
    lines.append(line(enter(flow, hub), flow.colour, false));
  const first = new Map(
    boxes
      .filter(({ side }) => side === "after")
      .toReversed()
      .map((box) => [box.rank, box]),
  );
  for (const to of first.values()) lines.append(line(leave(to, hub), "var(--soft)", true));
  const reduced = flows.some(({ to }) => to.origins.length > 1);
  lines.append(make("circle", { cx: hub.x, cy: hub.y, r: 30, class: "hub" }));
  const sign = text(reduced ? "Σ" : "all", hub.x, hub.y + 10, reduced ? NAME : LABEL, "value");
  sign.setAttribute("text-anchor", "middle");
  lines.append(sign);
}

function enter({ from }, hub) {
  const [x, y] = [from.x + from.width + 4, from.y + from.tall / 2];
  const bend = (hub.x - x) * 0.6;
  return `M${x} ${y}C${x + bend} ${y} ${hub.x - bend / 2} ${hub.y} ${hub.x} ${hub.y}`;
}

function leave(to, hub) {
  const [x, y] = [to.x - 6, to.y + to.tall / 2];
  const bend = (x - hub.x) * 0.6;
  return `M${hub.x} ${hub.y}C${hub.x + bend / 2} ${hub.y} ${x - bend} ${y} ${x} ${y}`;
}

function through(flow, hub) {
  const { x, y, width, tall } = flow.to;
  return `${enter(flow, hub)}${leave({ ...flow.to }, hub).replace(/^M\S+ \S+?(?=C)/, "")}L${x + Math.min(width / 2, 40)} ${y + tall / 2}`;
}

// From the cell, along the space below its row, across, and along the space above the other row into the other cell.
function route({ from, to, origin }, ends, flows) {
  const origins = [...new Set(flows.map((flow) => flow.origin))];
  const share = origins.length > 1 ? origins.indexOf(origin) / (origins.length - 1) - 0.5 : 0;
  const lift = share * Math.min(34, to.tall / 2);
  const out = from.last ? 0 : Math.min(ends.gap / 2, 14);
  const above = ends.gap / 2 + share * Math.min(ends.gap - 8, 30);
  const start = from.last
    ? [from.x + from.width, from.y + from.tall / 2 + lift / 2]
    : [from.x + from.width / 2, from.y + from.tall];
  const begin = from.last ? `M${start.join(" ")}H${ends.left + 6}` : `M${start.join(" ")}v${out}H${ends.left + 6}`;
  const [sx, sy] = [ends.left + 6, start[1] + out];
  const [ex, ey] = [ends.right - 12, to.first ? to.y + to.tall / 2 + lift : to.y - above];
  const bend = (ex - sx) / 2;
  const cross = `C${sx + bend} ${sy} ${ex - bend} ${ey} ${ex} ${ey}`;
  const finish = to.first ? `H${to.x - 2}` : `H${to.x + to.width / 2}V${to.y - 1}`;
  return `${begin}${cross}${finish}`;
}

function line(path, colour, arrow) {
  const group = make("g", { class: "flow", style: `--flow: ${colour}` });
  group.append(make("path", { d: path, class: "halo" }), make("path", { d: path }));
  const [head] = path.match(/[HV][^HVC]*$/) ?? [""];
  const way = group.lastElementChild;
  if (arrow) {
    const end = way.getPointAtLength(way.getTotalLength());
    group.append(
      make("path", {
        d: `M${end.x} ${end.y}${head.startsWith("V") ? "l-9 -15h18z" : "l-16 -9v18z"}`,
        class: "head",
        fill: colour,
      }),
    );
  }
  return group;
}

// Moves each chunk along its path; `back` from after to before. Resolves when all have arrived, or at once when asked.
export function play({ svg, flows }, back, duration) {
  const layer = make("g", { class: "chips", "aria-hidden": "true" });
  const chips = flows.map(({ path, colour, origin }) => {
    const [way, chip] = [make("path", { d: path }), make("g", {})];
    chip.append(make("rect", { x: -27, y: -20, width: 54, height: 40, rx: 8, stroke: colour }));
    const name = text(String(origin), 0, 9, LABEL, "value");
    name.setAttribute("text-anchor", "middle");
    chip.append(name);
    layer.append(chip);
    return { way, chip, length: way.getTotalLength() };
  });
  svg.append(layer);
  let stopped = false;
  const done = new Promise((resolve) => {
    const begin = performance.now();
    function frameOf(now) {
      const time = Math.min(1, Math.max(0, now - begin) / duration);
      const eased = time < 0.5 ? 2 * time * time : 1 - 2 * (1 - time) ** 2;
      for (const { way, chip, length } of chips) {
        const { x, y } = way.getPointAtLength(length * (back ? 1 - eased : eased));
        chip.setAttribute("transform", `translate(${x} ${y})`);
      }
      if (time < 1 && !stopped) requestAnimationFrame(frameOf);
      else {
        layer.remove();
        resolve();
      }
    }
    frameOf(begin);
  });
  return {
    done,
    stop() {
      stopped = true;
      layer.remove(); // at once: the next frame may be far off
    },
  };
}

// A picture without tensors, such as that of a barrier, as it is, and as large as fits.
export function enlarge({ drawing }, width, height, holder, unit) {
  const copy = document.importNode(drawing, true);
  for (const caption of copy.querySelectorAll(".caption")) caption.remove();
  holder.replaceChildren(copy);
  const scaleOf = (box) => Math.min(3, (width - 40) / box.width, (height - 20) / box.height);
  const least = ((LABEL + 1) * unit) / scaleOf(copy.getBBox());
  for (const one of copy.querySelectorAll("text")) {
    one.setAttribute("font-size", Math.max(least, one.getAttribute("font-size")));
  }
  const { x, y, width: wide, height: tall } = copy.getBBox();
  const scale = scaleOf({ width: wide, height: tall });
  copy.setAttribute("viewBox", `${x - 2} ${y - 2} ${wide + 4} ${tall + 4}`);
  copy.style.maxWidth = "none";
  copy.setAttribute("width", wide * scale);
  copy.setAttribute("height", tall * scale);
}

function text(words, x, y, size, kind) {
  const made = make("text", { x, y, "font-size": size, class: kind });
  made.textContent = words;
  return made;
}

function make(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
