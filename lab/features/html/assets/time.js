// Where the time went in the chosen range: for each rank, each phase, each operation; and who waited longest.

import { chip, element } from "lab/dom";
import { addShares, callsBetween, shareOf } from "lab/shares";
import { bytes, duration, integer, nameRanks } from "lab/words";

const PARTS = [
  ["own", "own work", "outside of calls that hold the rank up"],
  ["hidden", "beside communication", "part of the own work, with communication under way"],
  ["communicating", "communication", "in calls, after all needed ranks had entered"],
  ["waiting", "waiting", "inside calls, for others to enter"],
  ["unknown", "not known", "own work during asynchronous calls for which no rank was seen to wait"],
];
const UNITS = { "": 1e3, us: 1, µs: 1, ms: 1e3, s: 1e6, m: 60e6 };
const [MANY, FEW] = [16, 4]; // as `lab/report/style.py` has it
const byId = (id) => document.getElementById(id);

export function startTime(model, range, timeline, address) {
  if (!byId("time")) return;
  const ranks = model.ranks.filter((rank) => rank.to > rank.from);
  const fields = [byId("range-from"), byId("range-to")];
  let waiting = 0;

  function show() {
    waiting = 0;
    const { begin, end } = range;
    const shares = ranks.map((rank) => [rank, shareOf(rank, begin, end)]);
    const stuck = stuckRanks(ranks, range);
    const waited = longestWait(shares, range) || (ranks.length > 1 && !stuck ? "Nobody waited." : "");
    byId("range-told").textContent = [spanOf(range), waited, stuck].filter(Boolean).join(" ");
    fillShares(
      byId("time-ranks"),
      "rank",
      outstanding(shares).map(([who, share]) => [typeof who === "string" ? who : chip(who.rank), share]),
    );
    showPhases();
    fillCalls(byId("time-calls"), callsBetween(ranks, begin, end));
    [fields[0].value, fields[1].value] = [begin, end].map(exactly);
    for (const field of fields) field.removeAttribute("aria-invalid");
  }

  function showPhases() {
    const chosen = byId("phase-rank")?.value ?? "";
    const of = chosen === "" ? ranks : ranks.filter(({ rank }) => rank === Number(chosen));
    fillShares(byId("time-phases"), "phase", phases(model, of, range));
  }

  byId("phase-rank")?.addEventListener("input", showPhases);
  byId("range").addEventListener("submit", (event) => {
    event.preventDefault();
    const moments = fields.map((field) => parseMoment(field.value));
    fields.forEach((field, i) => {
      field.setAttribute("aria-invalid", Number.isNaN(moments[i]));
    });
    if (!moments.some(Number.isNaN)) range.set(...moments);
  });
  byId("range-view").onclick = () => range.set(...timeline.shown());
  byId("range-all").onclick = range.clear;
  range.onChange(() => {
    address.put("range", range.whole ? "" : `${range.begin}-${range.end}`);
    if (!waiting) waiting = requestAnimationFrame(show);
  });
  address.bind("range", (text) => {
    const [begin, end] = text.split("-").map(Number);
    if (end > begin) range.set(begin, end);
  });
  waiting = requestAnimationFrame(show);
}

// `1.2 s`, `3ms`, `250 us`; without a unit, milliseconds.
export function parseMoment(text) {
  const [, number, unit] = text.trim().match(/^(-?\d+(?:\.\d*)?)\s*(us|µs|ms|s|m|)$/) ?? [];
  return number === undefined ? Number.NaN : Number(number) * UNITS[unit];
}

function exactly(us) {
  return us % 1e6 === 0 ? `${us / 1e6} s` : `${us / 1e3} ms`;
}

function spanOf({ begin, end, whole }) {
  const long = duration(end - begin);
  return whole ? `The whole run, ${long}.` : `From ${exactly(begin)} to ${exactly(end)}, ${long}.`;
}

// Of many ranks, those with the most work of their own, and those that waited most and least; of the others the mean.
function outstanding(shares) {
  if (shares.length <= MANY) return shares;
  const by = (part) => [...shares].sort((a, b) => b[1][part] - a[1][part]);
  const told = new Set([...by("own").slice(0, FEW), ...by("waiting").slice(0, FEW), ...by("waiting").slice(-FEW)]);
  const others = shares.filter((one) => !told.has(one));
  if (!others.length) return shares;
  const mean = addShares(others.map(([, share]) => share));
  for (const part in mean) mean[part] /= others.length;
  const who = `the other ${others.length} ranks, each on average`;
  return [...shares.filter((one) => told.has(one)), [who, mean]];
}

// Who waited longest, and for whom most of that.
function longestWait(shares, { begin, end }) {
  const [lane, most] = shares.reduce((a, b) => (b[1].waiting > a[1].waiting ? b : a), shares[0] ?? [null, null]);
  if (!lane || most.waiting <= 0) return "";
  const part = percent(most.waiting, most.total);
  const sums = new Map();
  for (const call of lane.calls) {
    if (call.begin < begin || call.begin > end || !(call.wait > 0) || call.held < 0 || !call.step) continue;
    const { last } = call.step;
    if (last >= 0 && last !== lane.rank) sums.set(last, (sums.get(last) ?? 0) + call.wait);
  }
  const [whom] = [...sums].sort((a, b) => b[1] - a[1])[0] ?? [];
  const mostly = whom === undefined ? "" : sums.size > 1 ? `, mostly for rank ${whom}` : `, for rank ${whom}`;
  return `Rank ${lane.rank} waited longest: ${duration(most.waiting)}, ${part} of its time${mostly}.`;
}

// Whose calls were never done: how long they waited is not known, so it is in none of the numbers.
function stuckRanks(ranks, { begin, end }) {
  const stuck = ranks.filter((rank) =>
    rank.calls.some((call) => call.open && call.begin >= begin && call.begin <= end),
  );
  if (!stuck.length) return "";
  return `Calls of ${nameRanks(stuck.map(({ rank }) => rank))} that never ended are not counted.`;
}

// The time of ranks in each phase; phases inside of others count in both.
function phases({ phases: colours }, ranks, { begin, end }) {
  return Object.keys(colours)
    .map((name) => {
      const shares = ranks.flatMap((rank) =>
        rank.marks
          .filter((mark) => mark.name === name && mark.end > begin && mark.begin < end)
          .map((mark) => shareOf(rank, Math.max(begin, mark.begin), Math.min(end, mark.end))),
      );
      return [name, addShares(shares)];
    })
    .filter(([, share]) => share.total > 0);
}

function fillShares(table, head, rows) {
  const parts = PARTS.filter(([name]) => rows.some(([, share]) => share[name] > 0));
  fill(
    table,
    [[head], ["time"], ...parts.map(([name, words, hint]) => [words, hint, name]), ["share"]],
    rows.map(([who, share]) => [
      who,
      duration(Math.round(share.total)),
      ...parts.map(([name]) => `${duration(Math.round(share[name]))} (${percent(share[name], share.total)})`),
      bar(share),
    ]),
  );
}

function fillCalls(table, rows) {
  fill(
    table,
    [["operation"], ["calls", "that began in the range, of all ranks"], ["bytes"], ["inside", "all ranks together"]],
    rows.map((row) => [row.op, integer(row.calls), bytes(row.bytes), duration(Math.round(row.inside))]),
  );
}

function fill(table, heads, rows) {
  table.hidden = !rows.length;
  const head = heads.map(([words, title, part]) => {
    const sign = part ? element("i", { class: `swatch ${part}` }) : "";
    return element("th", { scope: "col", ...(title && { title }) }, sign, words);
  });
  const body = rows.map(([first, ...cells]) =>
    element("tr", {}, element("th", { scope: "row" }, first), ...cells.map((cell) => element("td", {}, cell))),
  );
  table.replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

// The same numbers as the row, as lengths.
function bar({ total, own, hidden, communicating, waiting, unknown }) {
  const lengths = { own: own - hidden, hidden, communicating, waiting, unknown };
  const pieces = Object.entries(lengths).map(([name, us]) =>
    element("i", { class: name, style: `width: ${total ? (us / total) * 100 : 0}%` }),
  );
  return element("span", { class: "bar", "aria-hidden": "true" }, ...pieces);
}

function percent(part, whole) {
  return `${whole ? Math.round((part / whole) * 100) : 0} %`;
}
