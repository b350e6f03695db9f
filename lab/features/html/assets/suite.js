// Begins the page of a suite: its table is sorted and filtered.

import { makeAddress } from "lab/address";
import { makeSortable } from "lab/tables";
import { startTheme } from "lab/theme";
import { integer, plural } from "lab/words";

const byId = (id) => document.getElementById(id);

export function start() {
  const address = makeAddress();
  const table = byId("suite");
  const rows = [...table.tBodies[0].rows];
  const fields = { text: byId("run-text"), verdict: byId("run-verdict") };

  function filter() {
    const [text, verdict] = [fields.text.value.trim().toLowerCase(), fields.verdict.value];
    for (const row of rows) {
      const fits = !verdict || row.dataset.verdict === verdict;
      row.hidden = !(fits && row.textContent.toLowerCase().includes(text));
    }
    const shown = rows.filter((row) => !row.hidden).length;
    byId("run-count").textContent = (shown < rows.length ? `${integer(shown)} of ` : "") + plural(rows.length, "run");
  }

  for (const [name, field] of Object.entries(fields)) {
    field.addEventListener("input", () => {
      filter();
      address.put(name, field.value.trim());
    });
    address.bind(name, (value) => {
      field.value = value;
      filter();
    });
  }
  byId("filter").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target.matches("input, select")) return;
    event.preventDefault();
    fields.text.focus();
  });
  startTheme(byId("theme"), () => {});
  makeSortable(table);
  address.start();
  document.documentElement.dataset.ready = "true";
}
